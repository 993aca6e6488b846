"""tools/bench predict: the simulator's step time against the measured one, for layouts of a GPT on this machine's devices.

Kernels are measured once by `weir calibrate`, over the shapes of all layouts; then each layout is trained for some steps and
simulated. Every device has one thread; where a layout has more devices than the machine has cores, they share them, in
both. A row's ratio is predicted over measured.
"""

import json
import pathlib
import statistics
import tempfile

from tests.bench import bench_report

NET = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 256, "sequence": 128, "batch": 8, "micro-batches": 4}
# Mesh, and what else the layout sets.
LAYOUTS = [
    ("", []),
    ("dp=2", []),
    ("dp=2", ["training.zero_stage=1"]),
    ("dp=2", ["training.zero_stage=2"]),
    ("dp=2", ["training.zero_stage=3"]),
    ("tp=2", []),
    ("pp=2", []),
    ("pp=2", ["training.micro_batches=8"]),
    ("dp=4", []),
    ("tp=4", []),
    ("pp=4", []),
    ("dp=2,tp=2", []),
    ("dp=2,pp=2", []),
    ("tp=2,pp=2", []),
]
WARMUP_STEPS = 3
WITHIN = 0.1


def predict_rows(bench):
    rounds = 2 if bench.args.quick else 3
    steps = 10 if bench.args.quick else 25
    rows, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job = folder / "job.textproto"
        flags = [part for name, value in NET.items() for part in ("--" + name, value)]
        job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags]), encoding="utf-8")
        samples = {index: ([], []) for index in range(len(LAYOUTS))}
        for _ in range(rounds):
            # In turn with what it is to predict, since the machine is not the same from minute to minute.
            cluster = folder / "cluster.textproto"
            also = [part for mesh in sorted({mesh for mesh, _ in LAYOUTS if mesh}) for part in ("--also", mesh)]
            bench.run([bench.weir, "calibrate", job, "-o", cluster, "--steps", 5, *also])
            for index, (mesh, sets) in enumerate(LAYOUTS):
                layout = ["--mesh", mesh, *[part for path in sets for part in ("--set", path)]]
                samples[index][0].append(predicted(bench, job, cluster, layout))
                samples[index][1].append(measured(bench, job, folder / "metrics.jsonl", layout, steps))
        for index, (mesh, sets) in enumerate(LAYOUTS):
            ours, theirs = ([seconds * 1e3 for seconds in side] for side in samples[index])
            what = " ".join([mesh or "1 device", *[path.split(".")[-1] for path in sets]])
            error = statistics.median(ours) / statistics.median(theirs) - 1
            errors.append(abs(error))
            note = f"{error * 100:+.1f} %" + ("" if abs(error) <= WITHIN else ", beyond 10 %")
            rows.append(bench_report.row(what, "ms", ours, "measured", theirs, "lower", None, note))
    met = sum(error <= WITHIN for error in errors)
    rows[-1]["note"] += f"; {met} of {len(errors)} layouts within 10 %, the worst is off by {max(errors) * 100:.1f} %"
    return rows


def predicted(bench, job, cluster, layout):
    report = bench.run([bench.weir, "sim", job, "--cluster", cluster, "--json", "--steps", 3, *layout])
    return json.loads(report)["step_seconds"]


def measured(bench, job, metrics, layout, steps):
    bench.run([bench.weir, "train", job, "--steps", WARMUP_STEPS + steps, "--threads", 1, "--metrics", metrics, *layout])
    walls = [json.loads(line)["step_seconds"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    return statistics.median(walls[WARMUP_STEPS:])
