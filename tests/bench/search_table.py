"""Prints the tables of docs/how_to/find_layouts.md: models on meshes, with the steps before and after a search.

  python3 -m tests.bench.search_table [--weir PROGRAM] [--small | --models]

A row has the step of Megatron's rules (the batch over dp, the inner dimensions over the other axes), of the best rules
that people usually write, and of the rules found, as `weir search` predicts them; and the processor time of the search.
The cell of the usual rules is empty if they are those found, or Megatron's.
For small models a row also has the least step of all lists of rules with at most two dimensions on an axis, each
predicted by `weir sim`. Settings are those of the job. Nothing here is a test.

With --models the models are those of tests/models, which PyTorch trains, in their small configurations, each on every
mesh of MESHES. Their jobs have Megatron's rules.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
import resource
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "docs" / "examples" / "gpu_cluster.textproto"
DIMS_ON_AN_AXIS = 2


@dataclasses.dataclass
class Case:
    name: str
    zoo: str  # arguments of `weir zoo`; empty: the job is in `job`
    mesh: str
    dims: tuple = ()  # whose rules are all tried; none: the model is too large for that
    job: str = ""  # the folder of a job in tests/models


LLAMA_8B = "llama --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 "
CASES = [
    Case("MLP, width 512", "mlp --layers 1 --hidden 512 --ffn 2048 --batch 64", "dp=2,tp=2",
         ("batch", "ffn", "hidden")),
    Case("MLP, width 512", "mlp --layers 1 --hidden 512 --ffn 2048 --batch 64", "tp=4", ("batch", "ffn", "hidden")),
    Case("GPT-2 124M, 4 layers", "gpt --layers 4 --hidden 768 --heads 12 --vocab 50257 --sequence 1024 --batch 16",
         "dp=4"),
    Case("GPT-2 124M, 4 layers", "gpt --layers 4 --hidden 768 --heads 12 --vocab 50257 --sequence 1024 --batch 16",
         "dp=2,tp=2"),
    Case("Llama 8B, 1 layer, 16 x 4,096 tokens", LLAMA_8B + "--layers 1 --sequence 4096 --batch 16", "dp=2,tp=4"),
    Case("Llama 8B, 1 layer, 16 x 4,096 tokens", LLAMA_8B + "--layers 1 --sequence 4096 --batch 16", "dp=2,tp=2,cp=2"),
    Case("Llama 8B, 2 layers, 2 x 32,768 tokens", LLAMA_8B + "--layers 2 --sequence 32768 --batch 2", "sp=8"),
    Case("Llama 8B, 32 layers, pipeline", LLAMA_8B + "--layers 32 --sequence 4096 --batch 64 --micro-batches 16",
         "dp=2,tp=4,pp=4"),
]


MODELS = {"GPT-2": "gpt2", "Llama": "llama", "Qwen2": "qwen2", "BERT": "bert", "ViT": "vit", "T5": "t5",
          "ResNet": "resnet", "ConvNeXt": "convnext", "U-Net": "unet", "Whisper": "whisper", "DLRM": "dlrm"}
MESHES = ("dp=4", "dp=2,tp=2", "tp=4")


def run(arguments):
    """Returns the standard output, and the processor time in seconds; the output is None if the command fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (done.stdout if done.returncode == 0 else None), seconds


def step_of(found, name):
    """Returns the step of the rows that are called so, or None."""
    steps = [row["step_seconds"] for row in found["layouts"] if row["name"] == name and row["fits"]]
    return min(steps) if steps else None


def least_of_all(weir, job, case):
    """Returns the least step of all lists of rules over the case's dimensions, or None."""
    axes = [axis.split("=")[0] for axis in case.mesh.split(",")]
    of_axis = [chosen for count in range(DIMS_ON_AN_AXIS + 1) for chosen in itertools.permutations(case.dims, count)]
    steps = []
    for lists in itertools.product(of_axis, repeat=len(axes)):
        rules = [f'rule={{dim: "{dim}" axis: "{axis}"}}' for axis, dims in zip(axes, lists) for dim in dims]
        sets = [part for rule in rules for part in ("--set", rule)]
        out, _ = run([weir, "plan", job, "--mesh", case.mesh, "--cluster", str(CLUSTER), "--json", *sets])
        if out is not None:
            steps.append(json.loads(out)["prediction"]["step_seconds"])
    return min(steps) if steps else None


def text_of(seconds):
    """Returns "12.3 ms", with three digits."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    return ""


def row_of(weir, case, folder):
    """Returns the cells of a row."""
    job = str(pathlib.Path(folder) / "job.textproto")
    if case.job:
        job = str(ROOT / "tests" / "models" / case.job / "job.textproto")
    else:
        out, _ = run([weir, "zoo", *case.zoo.split()])
        pathlib.Path(job).write_text(out, encoding="utf-8")
    out, seconds = run([weir, "search", job, "--mesh", case.mesh, "--cluster", str(CLUSTER), "--fix", "settings",
                        "--json"])
    if out is None:
        return [case.name, case.mesh, "refused", "", "", "", "", f"{seconds:.1f}"]
    found = json.loads(out)
    least = None
    if case.dims:
        bare = "".join(line for line in pathlib.Path(job).read_text(encoding="utf-8").splitlines(keepends=True)
                       if not line.startswith("rule "))
        pathlib.Path(job).write_text(bare, encoding="utf-8")
        least = least_of_all(weir, job, case)
    best = found["layouts"][0]
    rules = {}
    for rule in best["rules"]:
        dim, axis = rule.split(" -> ")
        rules.setdefault(axis.removesuffix(" (activations)"), []).append(dim + ("*" if "activations" in axis else ""))
    rules = "; ".join(f"{axis} {', '.join(dims)}" for axis, dims in rules.items())
    return [case.name, case.mesh, text_of(step_of(found, "present")), text_of(step_of(found, "usual")),
            text_of(best["step_seconds"]), text_of(least), rules, f"{seconds:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default=str(ROOT / "bazel-bin" / "tools" / "weir"))
    parser.add_argument("--small", action="store_true", help="only models of which all rules are tried")
    parser.add_argument("--models", action="store_true", help="the models of tests/models in place of large ones")
    arguments = parser.parse_args()
    cases = [Case(name, "", mesh, job=job) for name, job in MODELS.items() for mesh in MESHES]
    print("| model | mesh | Megatron's rules | best of the usual | found | best of all | rules found | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases if arguments.models else CASES:
            if case.dims or not arguments.small:
                print("| " + " | ".join(row_of(arguments.weir, case, folder)) + " |", flush=True)


if __name__ == "__main__":
    main()
