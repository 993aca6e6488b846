"""The section `gpt2` of tools/bench trains GPT-2 at its real size from a file with public names.

GPT-2 has 124 million parameters. The file holds seeded numbers, because the real weights are not on every machine.
Names, shapes and bytes are those of the file that `save_pretrained` writes, with the tied table once.
"""

import array
import json
import pathlib
import random
import sys
import tempfile
import time

from tests.bench import bench_parallel, bench_report

SIZES = {"layers": 12, "hidden": 768, "heads": 12, "vocab": 50257, "sequence": 1024}
SMOKE_SIZES = {"layers": 2, "hidden": 16, "heads": 2, "vocab": 64, "sequence": 8}
SEED = 1
DEVIATION = 0.02
BLOCK = 1 << 20  # numbers that are drawn; a tensor repeats them from a place of its own
COMPILE_SECONDS = 1.0
THREADS = 2


def shapes_of(layers, hidden, vocab, sequence, heads):
    """Returns {public name: shape}. The number of heads changes no shape."""
    del heads
    shapes = {"transformer.wte.weight": (vocab, hidden), "transformer.wpe.weight": (sequence, hidden),
              "transformer.ln_f.weight": (hidden,), "transformer.ln_f.bias": (hidden,)}
    for i in range(layers):
        block = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            shapes.update({f"{block}{norm}.weight": (hidden,), f"{block}{norm}.bias": (hidden,)})
        for product, rows, columns in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4),
                                       ("mlp.c_proj", 4, 1)):
            shapes[f"{block}{product}.weight"] = (rows * hidden, columns * hidden)
            shapes[f"{block}{product}.bias"] = (columns * hidden,)
    return shapes


def write_weights(path, sizes):
    """Writes the file of weights, and returns the number of parameters."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/python"))
    from weir import safetensors_file
    draw = random.Random(SEED)
    block = array.array("f", (draw.gauss(0, DEVIATION) for _ in range(BLOCK)))
    ones = array.array("f", [1.0])

    def values(name, count):
        if ".ln_" in name and name.endswith("weight"):
            return (ones * count).tobytes()
        begin = random.Random(f"{SEED} {name}").randrange(BLOCK)
        return ((block[begin:] + block[:begin]) * (count // BLOCK + 1))[:count].tobytes()

    tensors, parameters = {}, 0
    for name, shape in shapes_of(**sizes).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        parameters += count
        tensors[name] = ("F32", shape, lambda name=name, count=count: values(name, count))
    safetensors_file.write(path, tensors)
    return parameters


def gpt2_rows(bench):
    sizes = bench.sized(SIZES, SIZES, SMOKE_SIZES)
    rounds = bench.sized(3, 1, 1)
    flags = [part for name, value in sizes.items() for part in ("--" + name, value)]
    compiled, steps, held, planned = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        job, weights, metrics = folder / "gpt2.textproto", folder / "model.safetensors", folder / "metrics.jsonl"
        job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags, "--tied", "--batch", 1]), encoding="utf-8")
        parameters = write_weights(weights, sizes)
        for _ in range(rounds):
            begin = time.monotonic()
            bench.run([bench.weir, "plan", job])
            compiled.append(time.monotonic() - begin)
            metrics.unlink(missing_ok=True)
            report = bench.report([bench.weir, "train", job, "--init", weights, "--steps", 2, "--threads", THREADS,
                                   "--metrics", metrics], threads=THREADS)
            lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
            steps.append(lines[-1]["step_seconds"])
            held.append(bench_parallel.mib(sum(child["anonymous_bytes"] for child in report["children"])))
            planned.append(bench_parallel.mib(bench_parallel.planned_bytes(report["errors"])))
    what = f"GPT-2, {parameters / 1e6:.1f} million parameters"
    return [
        bench_report.row(f"{what}: from the job to the plan", "s", compiled, "goal", [COMPILE_SECONDS], "lower", 1.0,
                         "`weir plan`, the whole process"),
        bench_report.row(f"{what}: a step of {sizes['sequence']} tokens on {THREADS} cores", "s", steps, "", [],
                         "lower", None, "the second step after --init with public names"),
        bench_report.row(f"{what}: memory of the process", "MiB", held, "planned", planned, "lower", None,
                         "without the pages of the file; with the program's own"),
    ]
