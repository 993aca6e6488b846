"""The section `schedules` of tools/bench compares the idle time of pipeline schedules: predicted, simulated, measured.

All schedules run one GPT with 16 micro-batches. Four stages are more devices than this machine may have cores, so two
columns stand for a run:
  virtual    `weir sim` with the median times of the kernels from `weir calibrate`, and a core for every device
  real acts  the trace of `weir calibrate`: the plan's actors run real kernels, one act at a time. An act takes the time
             that its thread takes just then. Messages between devices take no time.
Two stages run under `weir train` on two cores, in wall time, in one process and in two. The bubble is that of the trace
as `weir trace report` gives it. The bench compares weights byte by byte.
"""

import json
import pathlib
import re
import statistics
import struct
import tempfile

from tests.bench import bench_report

NET = {"layers": 8, "hidden": 256, "heads": 4, "vocab": 256, "sequence": 64, "batch": 32, "micro-batches": 16}
SMOKE_NET = {**NET, "hidden": 16, "sequence": 8}
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zero-bubble")
FOUR, TWO = "pp=4", "pp=2"
MEBI = 1 << 20


class Schedules:

    def __init__(self, bench, folder):
        self.bench = bench
        self.folder = pathlib.Path(folder)
        self.steps = bench.sized(6, 4, 2)
        for schedule in SCHEDULES:
            flags = [part for name, value in bench.sized(NET, NET, SMOKE_NET).items() for part in ("--" + name, value)]
            text = self.weir("zoo", "gpt", *flags, "--schedule", schedule)
            self.job(schedule).write_text(text, encoding="utf-8")

    def weir(self, *arguments):
        return self.bench.run([self.bench.weir, *arguments])

    def job(self, schedule):
        return self.folder / f"{schedule}.textproto"

    def plan(self, schedule, mesh):
        """Returns the plan of a schedule, with the costs of its last calibration if there is one."""
        cluster = self.cluster(schedule)
        costs = ["--cluster", cluster] if cluster.exists() else []
        return json.loads(self.weir("plan", self.job(schedule), "--mesh", mesh, "--json", *costs))

    def cluster(self, schedule):
        return self.folder / f"{schedule}.cluster.textproto"

    def bubble_of(self, trace):
        return json.loads(self.weir("trace", "report", trace, "--json"))["pipeline_bubble"]

    def calibrated(self, schedule):
        """Returns the bubble with simulated acts and the bubble with real acts."""
        trace, cluster = self.folder / "trace.pftrace", self.cluster(schedule)
        self.weir("calibrate", self.job(schedule), "--mesh", FOUR, "--steps", self.steps, "-o", cluster,
                  "--trace", trace)
        real = self.bubble_of(trace)
        cluster.write_text(with_a_core_each(cluster.read_text(encoding="utf-8"), 4), encoding="utf-8")
        self.weir("sim", self.job(schedule), "--mesh", FOUR, "--cluster", cluster, "--steps", 3, "--trace", trace)
        return self.bubble_of(trace), real

    def trained(self, schedule, mesh, *arguments):
        """Trains, and returns the bubble and the content of the file of weights."""
        trace, weights = self.folder / "trace.pftrace", self.folder / f"{schedule}.{mesh}.safetensors"
        self.weir("train", self.job(schedule), "--mesh", mesh, "--threads", 1, "--steps", self.steps, "--trace", trace,
                  "--save", weights, *arguments)
        return self.bubble_of(trace), weights.read_bytes()


def with_a_core_each(cluster, devices):
    """Returns the text of a cluster whose devices do not share cores, so that no device slows another down."""
    host = cluster.index("host {")
    device = re.sub(r"\n *busy_ns: .*", "", cluster[:host])
    return device + re.sub(r"\n  core_speed: .*", "",
                           re.sub(r"\n  cores: \d+", f"\n  cores: {devices}", cluster[host:]))


def tensors_of(weights):
    """Returns the bytes of each tensor of a safetensors file by name."""
    length = struct.unpack("<Q", weights[:8])[0]
    header = json.loads(weights[8:8 + length])
    body = weights[8 + length:]
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def compared(weights, others):
    """Returns "same" if the tensors are equal, and otherwise a text that says which tensors differ."""
    ours, theirs = tensors_of(weights), tensors_of(others)
    differ = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return "same" if not differ else f"{len(differ)} of {len(theirs)} tensors differ, the first is {differ[0]}"


def percent(values):
    """Returns the median as a text, with the range if there is one."""
    text = f"{statistics.median(values) * 100:.1f}"
    return text + (f" [{min(values) * 100:.1f} .. {max(values) * 100:.1f}]" if len(values) > 1 else "")


def memory(plan):
    return ", ".join(f"{rank['arena_bytes'] / MEBI:.1f}" for rank in plan["ranks"])


def schedules_tables(bench):
    rounds = bench.sized(3, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        runs = Schedules(bench, folder)
        return [four_stages(runs, rounds), two_stages(runs, rounds)]


def four_stages(runs, rounds):
    samples = {schedule: [] for schedule in SCHEDULES}
    for _ in range(rounds):
        for schedule in SCHEDULES:
            samples[schedule].append(runs.calibrated(schedule))
    lines = []
    weights = {schedule: runs.trained(schedule, FOUR)[1] for schedule in SCHEDULES}
    for schedule in SCHEDULES:
        plan = runs.plan(schedule, FOUR)
        virtual, real = zip(*samples[schedule])
        lines.append([plan["schedule"]["kind"], percent([plan["schedule"]["bubble_of_even_parts"]]),
                      percent([plan["schedule"]["predicted_bubble"]]), percent(virtual), percent(real), memory(plan),
                      compared(weights[schedule], weights["1f1b"])])
    columns = ["4 stages x 16", "even parts, %", "predicted, %", "virtual, %", "real acts, %",
               "memory of each stage, MiB", f"weights after {runs.steps} steps, beside 1F1B's"]
    return bench_report.Table(columns, lines)


def two_stages(runs, rounds):
    ways = {1: [], 2: ["--processes", 2, "--logs", runs.folder / "logs"]}
    samples = {(schedule, way): [] for schedule in SCHEDULES for way in ways}
    weights = {}
    for _ in range(rounds):
        for (schedule, way), bubbles in samples.items():
            bubble, weights[schedule, way] = runs.trained(schedule, TWO, *ways[way])
            bubbles.append(bubble)
    lines = []
    for schedule in SCHEDULES:
        plan = runs.plan(schedule, TWO)
        lines.append([plan["schedule"]["kind"], percent([plan["schedule"]["bubble_of_even_parts"]]),
                      percent([plan["schedule"]["predicted_bubble"]]), percent(samples[schedule, 1]),
                      percent(samples[schedule, 2]), memory(plan),
                      *[compared(weights[schedule, way], weights["1f1b", 1]) for way in ways]])
    columns = ["2 stages x 16", "even parts, %", "predicted, %", "one process, %", "two processes, %",
               "memory of each stage, MiB", f"weights after {runs.steps} steps, beside 1F1B's in one process",
               "of two processes"]
    return bench_report.Table(columns, lines)
