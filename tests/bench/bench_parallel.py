"""The sections `parallel` and `launch` of tools/bench compare Weir's processes with PyTorch's over gloo.

Efficiency = seconds of a step in one process on one core / (2 x seconds of a step in two processes on a core each), for
the same net and batch. Every round begins with one process and runs all ways once, ours and theirs in turn.
Other programs make the steps (weir train, torch_parallel.py) and set priority and pinning (foreground.py).
"""

import dataclasses
import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from tests.bench import bench_programs, bench_report

PROCESSES = 2
MICRO_BATCHES = 8
WARMUP_STEPS = 5
# Each step of two processes waits for several wake-ups. On a machine with 24 other programs, 300 steps took 200 s.
SMOKE_STEPS = 20
BUBBLE = MICRO_BATCHES / (MICRO_BATCHES + PROCESSES - 1)
# The launch section uses this net, whose tensors are small on both sides beside the measured quantities.
TINY_NET = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 256, "sequence": 64, "batch": 8}


@dataclasses.dataclass
class Way:
    name: str
    zoo: list  # options of `weir zoo gpt`
    mesh: str
    how: str  # the --how of torch_parallel.py
    theirs: str
    budget: float = None
    micro_batches: int = 1


WAYS = [
    Way("DP", [], "dp=2", "ddp", "DDP", 0.97),
    Way("ZeRO-3", ["--zero", 3], "dp=2", "fsdp", "FSDP2", 0.85),
    Way("TP", [], "tp=2", "tp", "DTensor TP", 0.75),
    Way("sequence, Megatron", ["--sequence-parallel", "megatron"], "tp=2", "megatron", "SequenceParallel"),
    Way("sequence, Ulysses", ["--sequence-parallel", "ulysses"], "sp=2", "ulysses", "all-to-all by hand"),
    Way(f"1F1B, {MICRO_BATCHES} micro-batches", ["--micro-batches", MICRO_BATCHES], "pp=2", "1f1b", "Schedule1F1B",
        0.85, MICRO_BATCHES),
]


def flags_of(net):
    return [part for name, value in net.items() for part in ("--" + name, value)]


class Runs:
    """A Runs object starts the runs of one net, ours and theirs, in a folder of their own."""

    def __init__(self, bench, net, folder):
        self.bench, self.net, self.folder = bench, net, pathlib.Path(folder)
        self.steps = bench.sized(40, 20, 2)
        self.torch_steps = bench.sized(15, 8, 1)
        self.warmup_steps = bench.sized(WARMUP_STEPS, WARMUP_STEPS, 1)
        self.version = ""
        self.numbers = itertools.count()

    def job(self, name, *options):
        path = self.folder / f"{name.replace(' ', '_')}.textproto"
        if not path.exists():
            flags = {**{"--" + size: value for size, value in self.net.items()},
                     **dict(zip(options[::2], options[1::2]))}
            text = self.bench.run([self.bench.weir, "zoo", "gpt", *(part for flag in flags.items() for part in flag)])
            path.write_text(text, encoding="utf-8")
        return path

    def train(self, job, *options, steps=None):
        """Returns the command and the file of its metrics."""
        metrics = self.folder / f"{next(self.numbers)}.jsonl"
        return [self.bench.weir, "train", job, "--threads", 1, "--steps", steps or self.warmup_steps + self.steps,
                "--metrics", metrics, *options], metrics

    def fleet(self, job, mesh, steps=None):
        return self.train(job, "--mesh", mesh, "--processes", PROCESSES, "--logs", self.folder / "logs", steps=steps)

    def alone(self, job):
        command, metrics = self.train(job)
        self.bench.run(command, cores="0")
        return self.step_seconds(metrics)

    def together(self, job, mesh):
        command, metrics = self.fleet(job, mesh)
        self.bench.run(command, pin_children=True)
        return self.step_seconds(metrics)

    def side_by_side(self, job):
        """Runs one independent process per core, and returns the seconds of a step of the slower process."""
        runs = [self.train(job, "--seed", core) for core in range(PROCESSES)]
        self.bench.run_at_once([(command, str(core)) for core, (command, _) in enumerate(runs)])
        return max(self.step_seconds(metrics) for _, metrics in runs)

    def step_seconds(self, metrics):
        lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        return statistics.median(line["step_seconds"] for line in lines[self.warmup_steps:])

    def torch_command(self, how, micro_batches, steps, warmup, *options):
        return [self.bench.torch, self.bench.root / "tests/bench/torch_parallel.py", "--how", how, *flags_of(self.net),
                "--micro-batches", micro_batches, "--steps", steps, "--warmup", warmup, *options]

    def torch(self, how, micro_batches):
        command = self.torch_command(how, micro_batches, self.torch_steps, self.warmup_steps)
        where = {"cores": "0"} if how == "single" else {"pin_children": True}
        output = self.bench.run(command, limit_s=self.bench.peer_limit_s, **where)
        answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        self.version = answer["version"]
        return statistics.median(answer["wall"])


@dataclasses.dataclass
class Seconds:
    """Seconds holds the seconds of a step, with a sample per round."""
    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)


def efficiencies(one, two):
    return [a / (PROCESSES * b) for a, b in zip(one, two)]


def ways_of_torch(bench, net):
    """Returns the ways that the installed PyTorch has, and names the other ways on standard error."""
    if not bench.torch:
        print("parallel: skips the comparison with PyTorch, which no interpreter here can import. "
              "Try: tools/bench parallel --install", file=sys.stderr)
        return []
    script = bench.root / "tests/bench/torch_parallel.py"
    command = [bench.torch, script, "--how", "list", *flags_of(net)]
    answer = json.loads(bench.run(command, limit_s=bench.peer_limit_s))
    for way in WAYS:
        if way.how in answer["lacks"]:
            print(f"parallel: skips {way.theirs}: PyTorch {answer['version']} lacks {answer['lacks'][way.how]}. "
                  "Try: --install-torch", file=sys.stderr)
    return [way.how for way in WAYS if way.how not in answer["lacks"]]


def parallel_rows(bench, net):
    rounds = bench.sized(6, 3, 1)
    theirs = ways_of_torch(bench, net)
    one, pieces, apart = Seconds(), Seconds(), Seconds()
    two = {way.name: Seconds() for way in WAYS}
    base = bench_programs.Peer("PyTorch in one process") if bench.torch else None
    peers = {way.name: bench_programs.Peer(way.theirs) for way in WAYS if way.how in theirs}
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(bench, net, folder)
        half = runs.job("half", "--batch", net["batch"] // PROCESSES)
        whole, cut = runs.job("whole"), runs.job("cut", "--micro-batches", MICRO_BATCHES)
        for _ in range(rounds):
            one.ours.append(runs.alone(whole))
            pieces.ours.append(runs.alone(cut))
            apart.ours.append(runs.side_by_side(half))
            if base:
                base.collect(one.theirs, lambda: runs.torch("single", 1))
                base.collect(pieces.theirs, lambda: runs.torch("single", MICRO_BATCHES))
            for way in WAYS:
                two[way.name].ours.append(runs.together(runs.job(way.name, *way.zoo), way.mesh))
                if way.name in peers:
                    peers[way.name].collect(two[way.name].theirs,
                                            lambda w=way: runs.torch(w.how, w.micro_batches))
        version = runs.version
    return rows_of(net, one, pieces, apart, two, base, peers, version)


def rows_of(net, one, pieces, apart, two, base, peers, version):
    """Returns the rows from the seconds. `base` is the Peer in one process, or None, and `peers` has a Peer by way."""
    tokens = net["batch"] * net["sequence"]
    row = bench_report.row
    rows = []
    if base:
        rows.append(base.checked(row("one process, one core", "tokens/s", [tokens / s for s in one.ours],
                                     f"PyTorch {version}", [tokens / s for s in one.theirs], "higher", None,
                                     "the base of what follows")))
    rows.append(row("two processes that do not talk, half the batch each", "", efficiencies(one.ours, apart.ours), "",
                    [], "higher", None, "what shared caches and memory and the whole update in each leave of 1: "
                    "no way that copies weights can do better"))
    for way in WAYS:
        peer, of_way = peers.get(way.name), two[way.name]
        ours, theirs = efficiencies(one.ours, of_way.ours), efficiencies(one.theirs, of_way.theirs)
        if way.budget:
            rows.append(row(f"{way.name}: efficiency", "", ours, f"budget {way.budget}", [way.budget], "higher", 1.0,
                            ""))
        if peer:
            rows.append(base.checked(peer.checked(row(f"{way.name}: efficiency", "", ours, way.theirs, theirs, "higher",
                                                      None if way.budget else 1.0, ""))))
            rows.append(peer.checked(row(f"{way.name}: training", "tokens/s", [tokens / s for s in of_way.ours],
                                         way.theirs, [tokens / s for s in of_way.theirs], "higher", None, "")))
    peer, pipeline = peers.get(WAYS[-1].name), two[WAYS[-1].name]
    ours, theirs = efficiencies(pieces.ours, pipeline.ours), efficiencies(pieces.theirs, pipeline.theirs)
    schedule = [e / BUBBLE for e in ours]
    note = f"against one process with the same micro-batches, over m / (m + p - 1) = {BUBBLE:.3f}"
    rows.append(row("1F1B: schedule efficiency", "", schedule, "budget 0.95", [0.95], "higher", 1.0, note))
    if peer:
        rows.append(base.checked(peer.checked(row("1F1B: schedule efficiency", "", schedule, WAYS[-1].theirs,
                                                  [e / BUBBLE for e in theirs], "higher", None, ""))))
    return rows


def launch_rows(bench, net):
    """Measures the time from exec to the first step's metrics and to the end, and the memory of a worker."""
    row = bench_report.row
    rounds = bench.sized(11, 5, 1)
    if not bench.torch:
        print("launch: skips the comparison with PyTorch, which no interpreter here can import. "
              "Try: tools/bench launch --install", file=sys.stderr)
    rows, peer = [], bench_programs.Peer("PyTorch")
    for name, sizes in (("tiny GPT", TINY_NET), ("small GPT", net)):
        first, end, theirs_first, theirs_end = [], [], [], []
        with tempfile.TemporaryDirectory() as folder:
            runs = Runs(bench, sizes, folder)
            job = runs.job("dp")
            for _ in range(rounds):
                command, metrics = runs.fleet(job, "dp=2", steps=1)
                report = bench.report(command, first_line=metrics)
                first.append(report["first_line_seconds"])
                end.append(report["seconds"])
                if bench.torch:
                    line = metrics.with_suffix(".torch")
                    command = runs.torch_command("ddp", 1, 1, 0, "--first-line", line)
                    report = peer.sample(lambda c=command, l=line: bench.report(c, bench.peer_limit_s, first_line=l))
                    if report:
                        theirs_first.append(report["first_line_seconds"])
                        theirs_end.append(report["seconds"])
            if name == "tiny GPT":
                rows += memory_rows(runs, job, peer)
        rows.append(row(f"{name}, 2 processes: launch to first step", "s", first, "budget 0.5 s", [0.5], "lower", 1.0,
                        ""))
        if bench.torch:
            rows.append(peer.checked(row(f"{name}, 2 processes: launch to first step", "s", first, "PyTorch",
                                         theirs_first, "lower", None, "theirs without torchrun's agent")))
            rows.append(peer.checked(row(f"{name}, 2 processes: launch to the end of one step", "s", end, "PyTorch",
                                         theirs_end, "lower", None, "")))
    return rows


def memory_rows(runs, job, peer):
    """Measures the largest memory of a worker minus its planned memory.

    The figures of PyTorch include its tensors, which take only 2 MiB in all.
    """
    bench, row = runs.bench, bench_report.row
    ours, theirs, private, theirs_private = [], [], [], []
    for _ in range(bench.sized(3, 3, 1)):
        # A run has enough steps to show the memory at work.
        command, metrics = runs.fleet(job, "dp=2", steps=bench.sized(1500, 1500, SMOKE_STEPS))
        report = bench.report(command)
        planned = planned_bytes(report["errors"])
        ours.append(mib(peak_of(report) - planned))
        private.append(mib(max(child["anonymous_bytes"] + child["shared_bytes"] for child in report["children"])
                           - planned))
        if bench.torch:
            command = runs.torch_command("ddp", 1, bench.sized(100, 100, 2), 0)
            report = peer.sample(lambda c=command: bench.report(c, bench.peer_limit_s))
            if report:
                theirs.append(mib(peak_of(report)))
                theirs_private.append(
                    mib(max(child["anonymous_bytes"] + child["shared_bytes"] for child in report["children"])))
    rows = [row("memory of a process beside tensors", "MiB", ours, "budget 40 MB", [mib(40e6)], "lower", 1.0,
                "libraries included"),
            row("of that without pages of files, which processes share", "MiB", private, "", [], "lower", None, "")]
    if bench.torch:
        rows.insert(1, peer.checked(row("memory of a process beside tensors", "MiB", ours, "PyTorch", theirs, "lower",
                                        None, "")))
        rows[2] = peer.checked(row(rows[2]["what"], "MiB", private, "PyTorch", theirs_private, "lower", None, ""))
    return rows


def fleet_memory_rows(bench, net):
    """Compares the memory that two processes together hold for tensors with the planned memory.

    Both figures are those of the medium GPT minus those of the tiny GPT.
    """
    held, planned = [], []
    for _ in range(bench.sized(3, 1, 1)):
        of = []
        for sizes, steps in ((TINY_NET, bench.sized(200, 200, SMOKE_STEPS)), (net, 6)):
            with tempfile.TemporaryDirectory() as folder:
                runs = Runs(bench, sizes, folder)
                command, _ = runs.fleet(runs.job("dp", "--held-out", 0), "dp=2", steps=steps)
                report = bench.report(command)
            # One process writes landing memory and the other process reads it, so both processes count it.
            of.append((
                sum(child["anonymous_bytes"] + child["shared_bytes"] / PROCESSES for child in report["children"]),
                PROCESSES * planned_bytes(report["errors"])))
        held.append(mib(of[1][0] - of[0][0]))
        planned.append(mib(of[1][1] - of[0][1]))
    return [bench_report.row("medium GPT, 2 processes on dp=2: data at the most", "MiB", held, "planned", planned,
                             "lower", 1.02, f"{held[-1] - planned[-1]:+.1f} MiB; landing memory counted once; "
                             "beyond the tiny GPT's")]


def peak_of(report):
    return max(child["peak_bytes"] for child in report["children"])


def planned_bytes(said):
    """Returns the number of bytes in a text such as "..., 208.4 MiB per device"."""
    number, unit = said.split(" per device")[0].split()[-2:]
    return float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)


def mib(count):
    return count / (1 << 20)
