"""Runs `weir train` on a job with weights, on the meshes of the tests, and compares losses."""

import json
import pathlib
import subprocess
import tempfile

LOSS_TOLERANCE = 1e-5
# The ways to run a job: options of `weir train`.
RUNS = {
    "one device": [],
    "dp=2": ["--mesh", "dp=2"],
    "tp=2": ["--mesh", "tp=2"],
    "pp=2, 2 micro-batches": ["--mesh", "pp=2", "--set", "training.micro_batches=2"],
    "dp=2,tp=2": ["--mesh", "dp=2,tp=2"],
    "dp=2, ZeRO 3": ["--mesh", "dp=2", "--set", "training.zero_stage=3"],
}
# Models with batch normalisation. Their statistics are those of a micro-batch, and PyTorch's are those of the batch, so
# their runs have one micro-batch.
BATCH_NORM = ("resnet",)
# Models without a function that is called several times, which a pipeline cannot cut.
NO_STAGES = ("dlrm",)


def runs_of(model):
    """Returns the names of the runs that are possible for a model."""
    return [run for run in RUNS if not (model in NO_STAGES and run.startswith("pp="))]


def options_of(model, run):
    """Returns the options of a run for a model."""
    return RUNS[run] + (["--set", "training.micro_batches=1"] if model in BATCH_NORM else [])


def losses(program, folder, options, steps=None):
    """Returns the losses that Weir reports for the job and the weights of a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        metrics = pathlib.Path(scratch, "metrics.jsonl")
        command = [program, "train", pathlib.Path(folder, "job.textproto"), "--init",
                   pathlib.Path(folder, "weights.safetensors"), "--metrics", metrics, *options]
        command += [] if steps is None else ["--steps", steps]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(options)}: {done.stderr}")
        return [json.loads(line)["loss"] for line in metrics.read_text(encoding="utf-8").splitlines()]


def difference(ours, theirs):
    """Returns the largest difference of two curves of equal length."""
    if len(ours) != len(theirs):
        raise AssertionError(f"expected {len(theirs)} steps; found {len(ours)}")
    return max(abs(a - b) for a, b in zip(ours, theirs))
