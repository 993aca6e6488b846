"""Makes a run of any number of acts for the page of `weir view`, and serves the page with it, without the program.

The run has the form of tools/view/run_bundle.h, as the server hands it over before the analysis. All queues have acts
of the same lengths at the same times, and the waits of a queue have the cause that its number says.
"""

import json
import struct

import numpy as np

from tests.view import page_server

FUNCTIONS = 8  # of each phase
PHASES = ("forward", "backward", "update", "boxing")
MICRO_BATCHES = 8
ACT_NS = 1000
GAP_NS = 100  # between two acts of which the second waits for nothing
WAITS = ("late", "way", "own", "credit")  # the cause of the waits of queue q is number q % 4
WAIT_OF = {"late": 1, "way": 1, "own": 1, "credit": 2}
PER_STEP = 64  # acts of a queue
TYPES = {"uint8": "u8", "int32": "i32", "uint32": "u32", "float32": "f32", "float64": "f64"}


def _columns(acts, queues):
    """Returns the columns of a run by name."""
    each = acts // queues
    actors = len(PHASES) * FUNCTIONS  # of a queue
    number = np.arange(each)
    lengths = (ACT_NS * (1 + number % 3)).astype(np.float32)
    waits = np.where(number % 4 == 1, ACT_NS * 2, 0).astype(np.float32)
    gaps = np.where(waits > 0, waits, GAP_NS)
    begins = np.cumsum(gaps + lengths) - lengths
    queue = np.repeat(np.arange(queues), each)
    # Register 2 q lies inside the rank of queue q, and 2 q + 1 comes from the queue before it.
    kinds = np.array([WAITS[q % 4] != "own" for q in range(queues)])
    waited = np.where(np.tile(waits > 0, queues), 2 * queue + kinds[queue], -1)
    # A late token is sent when the act begins, and one under way was sent when the wait began.
    cause = np.full(each * queues, -1)
    for q in range(queues):
        if WAITS[q % 4] == "late":
            part = slice(q * each, (q + 1) * each)
            cause[part] = np.where(waits > 0, np.minimum(number, each - 1) + q * each, -1)
    registers = 2 * queues
    columns = {
        "queue_first_act": np.arange(queues + 1, dtype=np.uint32) * each,
        "act_begin": np.tile(begins, queues),
        "act_ns": np.tile(lengths, queues),
        "act_actor": (queue * actors + np.tile(number % actors, queues)).astype(np.uint32),
        "act_step": np.tile(number // PER_STEP + 1, queues).astype(np.int32),
        "act_micro_batch": np.tile(number % MICRO_BATCHES, queues).astype(np.int32),
        "act_chunk": np.zeros(each * queues, dtype=np.int32),
        "act_wait": np.where(waited < 0, 0, np.array([WAIT_OF[WAITS[q % 4]] for q in range(queues)])[queue])
        .astype(np.uint8),
        "act_wait_ns": np.tile(waits, queues),
        "act_waited_register": waited.astype(np.int32),
        "act_cause": cause.astype(np.int32),
        "actor_rank": np.repeat(np.arange(queues), actors).astype(np.uint32),
        "actor_queue": np.repeat(np.arange(queues), actors).astype(np.uint32),
        "actor_planned_ns": np.zeros(queues * actors),
        "register_bytes": np.full(registers, 1024.0),
        "register_slots": np.full(registers, 2, dtype=np.int32),
        "register_producer": (np.repeat(np.arange(queues), 2) * actors).astype(np.int32),
        "register_crosses_ranks": np.tile([0, 1], queues).astype(np.uint8),
        "register_other_rank": np.full(registers, -1, dtype=np.int32),
        "register_waited_input_ns": np.zeros(registers),
        "register_waited_credit_ns": np.zeros(registers),
        "register_first_consumer": np.arange(registers + 1, dtype=np.uint32),
        "consumer_actor": (np.repeat(np.arange(queues), 2) * actors + 1).astype(np.uint32),
    }
    return columns, float(begins[-1] + lengths[-1])


def bundle(acts, queues=24):
    """Returns the bundle of a run of about `acts` acts."""
    columns, end = _columns(acts, queues)
    strings, places = [], {}

    def place(text):
        if text not in places:
            places[text] = len(strings)
            strings.append(text)
        return places[text]

    names = [f"{phase} layers.{n}" for n in range(FUNCTIONS) for phase in PHASES]
    columns["actor_name"] = np.array([place(name) for _ in range(queues) for name in names], dtype=np.uint32)
    columns["actor_function"] = columns["actor_name"]
    columns["actor_phase"] = np.array([place(name.split()[0]) for _ in range(queues) for name in names],
                                      dtype=np.uint32)
    columns["register_name"] = np.array([place(f"layers.{r % 2}.y") for r in range(2 * queues)], dtype=np.uint32)
    columns["register_family"] = columns["register_name"]
    steps = max(1, acts // queues // PER_STEP)
    listed, body, offset = [], [], 0
    for name, column in columns.items():
        data = column.tobytes()
        listed.append({"name": name, "type": TYPES[str(column.dtype)], "offset": offset, "count": len(column)})
        body += [data, bytes(-len(data) % 8)]
        offset += len(data) + -len(data) % 8
    text = json.dumps({
        "title": f"{acts} acts", "pending": True, "strings": strings, "columns": listed,
        "report": {"plan": "made", "ranks": queues, "stages": 1, "micro_batches": MICRO_BATCHES},
        "ranks": [{"rank": q, "name": f"rank {q}"} for q in range(queues)],
        "queues": [{"rank": q, "name": f"rank {q}"} for q in range(queues)],
        "steps": [{"step": n + 1, "begin_ns": end * n / steps, "end_ns": end * (n + 1) / steps, "first_of_run": n == 0}
                  for n in range(steps)],
    }).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([b"WEIRVIEW", struct.pack("<II", len(text), 1), text, *body])


class Served(page_server.PageServer):
    """Served serves the page with a bundle until close(). The analysis never comes."""

    def __init__(self, frame, style, script, run):
        policy = "default-src 'self' 'unsafe-inline' blob:; img-src data:"
        page = frame.replace("@SHOWS@", "recorded").replace("@POLICY@", policy).replace("@RUN@", "")
        page = page.replace("@STYLE@", style).replace("@SCRIPT@", script.replace("</script", "<\\/script"))
        answers = {"": ("text/html; charset=utf-8", page.encode()), "run": ("application/octet-stream", run),
                   "progress": ("application/json", b'{"ready": false, "doing": "waits"}')}
        super().__init__(lambda name: answers.get(name, ("text/plain", b"")))
