"""The section `checkpoint` of tools/bench: what a checkpoint folder costs a run in two processes, beside
torch.distributed.checkpoint on the same tensors.

Stall is the time that the steps wait; the bytes are written beside the next ones. Both sides flush to disk. PyTorch
saves the tensors that each rank of Weir owns, without a training beside it; so the checkpoint behind Weir's last step
is the one to compare with.
"""

import json
import pathlib
import re
import shutil
import statistics
import struct
import sys
import tempfile

from tests.bench import bench_programs, bench_report

# 26 million parameters: with two states of the optimiser each, 300 MiB.
NET = {"layers": 8, "hidden": 512, "heads": 8, "vocab": 256, "sequence": 16, "batch": 2}
SMOKE_NET = {"layers": 1, "hidden": 16, "heads": 2, "vocab": 64, "sequence": 8, "batch": 2}
EVERY = 8  # steps: the writing of a checkpoint ends before the next one is due
UNITS = {"ms": 1e-3, "s": 1.0}


def tensors_of(shard_file):
    """Returns [name, shape] of each tensor in a file of safetensors."""
    with open(shard_file, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [[name, tensor["shape"]] for name, tensor in header.items() if name != "__metadata__"]


def add_median(samples, values):
    """Adds the median of some seconds as ms. A short run may have ended before it had any."""
    if values:
        samples.append(statistics.median(values) * 1e3)


def command_of(bench, job, run):
    return [bench.weir, "train", job, "--mesh", "dp=2", "--processes", 2, "--threads", 1, "--checkpoint", f"{run}/",
            "--checkpoint-every", EVERY]


def seconds_said(bench, command, what):
    """Returns the seconds that the program says behind `what`."""
    with bench.start(command) as program:
        errors = program.finish(bench.limit_s)[1]
    value, unit = re.search(what + r" .* in ([\d.]+)(ms|s)\b", errors).groups()
    return float(value) * UNITS[unit]


def saves_alone(bench, job, folder, count):
    """Returns seconds of checkpoints behind the last step, beside which nothing is done."""
    seconds = []
    for _ in range(count):
        seconds.append(seconds_said(bench, [*command_of(bench, job, folder / "alone"), "--steps", EVERY], "written to"))
        shutil.rmtree(folder / "alone")
    return seconds


def weir_times(bench, job, folder, count):
    """Returns lists of seconds: stall of the first checkpoint, and of later ones; write of later ones; and a load."""
    metrics, run = folder / "m.jsonl", folder / "run"
    command = [*command_of(bench, job, run), "--keep", 1, "--metrics", metrics, "--steps", EVERY * (count + 3)]
    bench.run(command)
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    stall = [row["checkpoint_stall_seconds"] for row in rows if row["step"] % EVERY == 0
             and "checkpoint_stall_seconds" in row]
    write = [row["checkpoint_seconds"] for row in rows if "checkpoint_seconds" in row]
    load = seconds_said(bench, [*command, "--resume", run], "states read from")
    return stall[:1], stall[1:count + 1], write[1:count + 1], [load]


def torch_times(bench, folder, count):
    """Returns what torch_checkpoint.py prints."""
    (folder / "meeting").unlink(missing_ok=True)
    commands = [[bench.torch, bench.root / "tests/bench/torch_checkpoint.py", folder, rank, count] for rank in (0, 1)]
    with bench.start(commands[1]) as second, bench.start(commands[0]) as first:
        output = first.finish(bench.peer_limit_s)[0]
        second.finish(bench.peer_limit_s)
    return json.loads(output)


def checkpoint_rows(bench):
    net = bench.sized(NET, NET, SMOKE_NET)
    rounds, count = bench.sized((5, 4), (3, 2), (1, 1))
    flags = [part for name, value in net.items() for part in ("--" + name, value)]
    ours = {"first": [], "stall": [], "save": [], "alone": [], "load": []}
    theirs = {"stall": [], "async": [], "save": [], "load": []}
    size, their_sizes = 0, []
    peer, version, lacks = bench_programs.Peer("PyTorch"), "", ""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        job = folder / "job.textproto"
        job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags]), encoding="utf-8")
        for _ in range(rounds):
            first, stall, write, load = weir_times(bench, job, folder, count)
            alone = saves_alone(bench, job, folder, count)
            for name, seconds in (("first", first), ("stall", stall), ("save", write), ("alone", alone), ("load", load)):
                add_median(ours[name], seconds)
            shards = sorted((folder / "run").glob("step-*/rank-*.safetensors"))
            size = sum(file.stat().st_size for file in (folder / "run").glob("step-*/*"))
            for rank, shard in enumerate(shards):
                (folder / f"tensors.{rank}").write_text(json.dumps(tensors_of(shard)), encoding="utf-8")
            said = peer.sample(lambda: torch_times(bench, folder, count + 1)) if bench.torch and not lacks else None
            lacks = lacks or (said or {}).get("lacks", "")
            if said and not lacks:
                version = said["version"]
                their_sizes.append(said["bytes"] / (1 << 20))
                for name, samples in theirs.items():
                    add_median(samples, said[name][1:])
    if not bench.torch or lacks:
        print(f"checkpoint: NOT compared with torch.distributed.checkpoint: {lacks or 'no interpreter imports torch'}. "
              "Try: tools/bench checkpoint --install-torch", file=sys.stderr)
    against = f"PyTorch {version} DCP"
    what = f"{size / (1 << 20):,.0f} MiB, 2 processes: "

    def row(name, key, peer_key, note, limit=None):
        if not theirs[peer_key]:
            return bench_report.row(what + name, "ms", ours[key], "", [], "lower", None, note)
        return peer.checked(bench_report.row(what + name, "ms", ours[key], f"{against} {peer_key}", theirs[peer_key],
                                             "lower", limit, note))

    goal = 1 / 1.2
    rows = [("stall of the first checkpoint", "first", "stall", "theirs: of later ones", None),
            ("stall of later checkpoints", "stall", "stall", "the steps wait", goal),
            ("from begin to commit", "alone", "save", "both beside nothing", goal),
            ("from begin to commit", "save", "async", "ours beside steps of both cores, theirs beside nothing", None),
            ("load", "load", "load", "from the page cache", goal)]
    on_disk = bench_report.row(what + "bytes of a checkpoint", "MiB", [size / (1 << 20)], against if their_sizes else "",
                               their_sizes[:1], "lower", None, "with indexes and checksums")
    return [row(*one) for one in rows if ours[one[1]]] + [on_disk]
