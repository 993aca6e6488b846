"""The section `predict` of tools/bench compares the simulator's step time with the measured one, for layouts of a GPT.

`weir calibrate` measures the kernels on this machine's devices, in every layout, and the transfers between processes if
devices are processes. The bench then trains and simulates each layout for some steps. Every device has one thread. If a
layout has more devices than the machine has cores, the devices share the cores in the training and in the simulation.
The ratio of a row is predicted over measured.
"""

import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile

from tests.bench import bench_report

NET = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 256, "sequence": 128, "batch": 8, "micro-batches": 4}
SMOKE_NET = {**NET, "hidden": 16, "sequence": 8}


@dataclasses.dataclass
class Layout:
    mesh: str
    zoo: tuple = ()  # options of `weir zoo gpt` that write the model in another way
    sets: tuple = ()
    processes: int = 0  # 0 means one process

    def name(self):
        options = [str(part).removeprefix("--") for part in self.zoo]
        where = [f"in {self.processes} processes"] if self.processes else []
        return " ".join([self.mesh or "1 device", *options, *[path.split(".")[-1] for path in self.sets], *where])


MEGATRON = ("--sequence-parallel", "megatron")
ULYSSES = ("--sequence-parallel", "ulysses")
LAYOUTS = [
    Layout(""),
    Layout("", ("--recompute",)),
    Layout("dp=2"),
    Layout("dp=2", sets=("training.zero_stage=1",)),
    Layout("dp=2", sets=("training.zero_stage=2",)),
    Layout("dp=2", sets=("training.zero_stage=3",)),
    Layout("tp=2"),
    Layout("tp=2", MEGATRON),
    Layout("tp=2", ("--recompute",)),
    Layout("sp=2", ULYSSES),
    Layout("pp=2"),
    Layout("pp=2", sets=("training.micro_batches=8",)),
    Layout("pp=2", sets=("pipeline.schedule=GPIPE",)),
    Layout("pp=2", sets=("pipeline.schedule=INTERLEAVED",)),
    Layout("pp=2", sets=("pipeline.schedule=ZERO_BUBBLE",)),
    Layout("dp=4"),
    Layout("tp=4"),
    Layout("pp=4"),
    Layout("dp=2,tp=2"),
    Layout("dp=2,tp=2", sets=("training.zero_stage=3",)),
    Layout("dp=2,pp=2"),
    Layout("dp=2,pp=2", sets=("training.zero_stage=1",)),
    Layout("tp=2,pp=2"),
    Layout("dp=2", processes=2),
    Layout("tp=2", processes=2),
    Layout("pp=2", processes=2),
]
WARMUP_STEPS = 3
WITHIN = 0.1


def predict_rows(bench):
    rounds, steps = bench.sized((3, 25), (2, 10), (1, 2))
    layouts = bench.sized(LAYOUTS, LAYOUTS, [LAYOUTS[0], LAYOUTS[2], LAYOUTS[-1]])
    rows, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        jobs = job_files(bench, folder)
        samples = {index: ([], []) for index in range(len(layouts))}
        for _ in range(rounds):
            # Predictions and measurements take turns, since the machine changes from minute to minute.
            clusters = {processes: calibrated(bench, folder, jobs, layouts, processes)
                        for processes in {layout.processes for layout in layouts}}
            for index, layout in enumerate(layouts):
                job = [jobs[layout.zoo], "--mesh", layout.mesh,
                       *[part for path in layout.sets for part in ("--set", path)]]
                spread = ["--processes", layout.processes, "--logs", folder / "logs"] if layout.processes else []
                samples[index][0].append(predicted(bench, job, clusters[layout.processes]))
                samples[index][1].append(measured(bench, [*job, *spread], folder / "metrics.jsonl", steps))
        for index, layout in enumerate(layouts):
            ours, theirs = ([seconds * 1e3 for seconds in side] for side in samples[index])
            error = statistics.median(ours) / statistics.median(theirs) - 1
            errors.append(abs(error))
            note = f"{error * 100:+.1f} %" + ("" if abs(error) <= WITHIN else ", beyond 10 %")
            rows.append(bench_report.row(layout.name(), "ms", ours, "measured", theirs, "lower", None, note))
    met = sum(error <= WITHIN for error in errors)
    rows[-1]["note"] += f"; {met} of {len(errors)} layouts within 10 %, the worst is off by {max(errors) * 100:.1f} %"
    return rows


def calibrated(bench, folder, jobs, layouts, processes):
    """Calibrates this machine for all layouts in `processes` processes, and returns the cluster file."""
    cluster = folder / f"cluster{processes}.textproto"
    here = [layout for layout in layouts if layout.processes == processes]
    also = [part for layout in here if layout.mesh or layout.zoo
            for part in ("--also", " ".join([str(jobs[layout.zoo]), layout.mesh, *layout.sets]))]
    between = ["--between-processes", "auto", "--logs", folder / "logs"] if processes else []
    bench.run([bench.weir, "calibrate", jobs[()], "-o", cluster, "--steps", 5, *also, *between])
    return cluster


def job_files(bench, folder):
    """Writes a job file for each way in which the layouts write the model, and returns {options: path}."""
    jobs = {}
    for zoo in {layout.zoo for layout in LAYOUTS}:
        flags = [part for name, value in bench.sized(NET, NET, SMOKE_NET).items() for part in ("--" + name, value)]
        jobs[zoo] = folder / f"job{len(jobs)}.textproto"
        jobs[zoo].write_text(bench.run([bench.weir, "zoo", "gpt", *flags, *zoo]), encoding="utf-8")
    return jobs


def predicted(bench, job, cluster):
    report = json.loads(bench.run([bench.weir, "sim", *job, "--cluster", cluster, "--json", "--steps", 3]))
    if report["kernels_estimated"] > 0:
        print(f"predict: {report['kernels_estimated']} of {report['kernels']} kernels of {job[2:]} were not measured",
              file=sys.stderr)
    return report["step_seconds"]


def measured(bench, job, metrics, steps):
    bench.run([bench.weir, "train", *job, "--steps", WARMUP_STEPS + steps, "--threads", 1, "--metrics", metrics])
    walls = [json.loads(line)["step_seconds"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    return statistics.median(walls[WARMUP_STEPS:])
