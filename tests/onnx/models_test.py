"""Imports models that PyTorch exported to ONNX, trains them on several meshes, and compares with PyTorch's losses.

Models of Weir go to ONNX and back, and have the losses that they had.
"""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.models import synthetic_data, weir_runs
from tests.onnx import settings

PROGRAM = pathlib.Path("tools/weir").resolve()
FIXTURES = sorted(path.parent for path in pathlib.Path("tests/onnx/models").glob("*/losses.json"))
TRAINING = [
    f"training.steps={settings.STEPS}", f"training.seed={settings.SEED}",
    f"training.schedule.learning_rate={settings.RATE}", f"training.optimizer.adamw.beta1={settings.BETAS[0]}",
    f"training.optimizer.adamw.beta2={settings.BETAS[1]}", f"training.optimizer.adamw.epsilon={settings.EPSILON}",
    f"training.optimizer.adamw.weight_decay={settings.WEIGHT_DECAY}",
]


def imported(folder, scratch):
    """Imports a fixture into a folder."""
    sizes = {"batch": settings.SIZES["batch"]}
    if folder.name.startswith("gpt"):
        sizes = settings.SIZES
    command = [PROGRAM, "import", folder / "model.onnx", "-o", pathlib.Path(scratch, "job.textproto"), "--loss",
               "cross_entropy"]
    command += ["--targets", "targets" if folder.name.startswith("gpt") else "labels"]
    for name, size in sizes.items():
        command += ["--dim", f"{name}={size}"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    pathlib.Path(scratch, "job.safetensors").rename(pathlib.Path(scratch, "weights.safetensors"))
    return pathlib.Path(scratch, "job.textproto").read_text(encoding="utf-8")


ZOO = {
    "gpt": ["--layers", 2, "--hidden", 16, "--heads", 4, "--vocab", 32, "--sequence", 8, "--batch", 4, "--tied"],
    "llama": ["--layers", 2, "--hidden", 16, "--heads", 4, "--kv-heads", 2, "--vocab", 32, "--sequence", 8, "--batch",
              4],
}


def weir(*arguments):
    """Runs the program and returns what it prints."""
    done = subprocess.run([str(part) for part in (PROGRAM, *arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(str(part) for part in arguments)}: {done.stderr}")
    return done.stdout


def zoo_model(name, scratch):
    """Makes a model of the zoo in a folder, trains it for three steps, and exports it."""
    job, weights = pathlib.Path(scratch, "job.textproto"), pathlib.Path(scratch, "weights.safetensors")
    job.write_text(weir("zoo", name, *ZOO[name]), encoding="utf-8")
    weir("train", job, "--steps", 3, "--save", weights)
    weir("export", job, "--weights", weights, "--onnx", pathlib.Path(scratch, "model.onnx"))
    return job


class ModelsTest(unittest.TestCase):

    def test_a_model_that_goes_to_onnx_and_back_has_equal_losses(self):
        for name in ("gpt", "llama"):
            with self.subTest(model=name), tempfile.TemporaryDirectory() as scratch:
                zoo_model(name, scratch)
                back = pathlib.Path(scratch, "back")
                back.mkdir()
                sizes = ["--dim", "batch=4"] + (["--dim", "sequence=8"] if name == "llama" else [])
                weir("import", pathlib.Path(scratch, "model.onnx"), "-o", back / "job.textproto", "--loss",
                     "cross_entropy", *sizes)
                (back / "job.safetensors").rename(back / "weights.safetensors")
                # Both jobs train alike.
                block = re.compile(r"(?ms)^training \{.*?^\}\n")
                settings_of_zoo = block.search(pathlib.Path(scratch, "job.textproto").read_text(encoding="utf-8"))[0]
                text = (back / "job.textproto").read_text(encoding="utf-8")
                (back / "job.textproto").write_text(block.sub(settings_of_zoo, text), encoding="utf-8")
                before = weir_runs.losses(PROGRAM, scratch, [], steps=5)
                after = weir_runs.losses(PROGRAM, back, [], steps=5)
                self.assertLessEqual(weir_runs.difference(after, before), weir_runs.LOSS_TOLERANCE)

    def test_onnx_runtime_computes_the_scores_of_an_exported_model(self):
        try:
            import numpy  # pylint: disable=import-outside-toplevel
            import onnxruntime  # pylint: disable=import-outside-toplevel
        except ImportError as error:
            self.skipTest(f"NOT TESTED: {error}; a venv with the package onnxruntime of PyPI has it")
        for name in ("gpt", "llama"):
            with self.subTest(model=name), tempfile.TemporaryDirectory() as scratch:
                job, model = zoo_model(name, scratch), pathlib.Path(scratch, "loss.onnx")
                weights = pathlib.Path(scratch, "weights.safetensors")
                weir("export", job, "--weights", weights, "--onnx", model, "--output", "loss", "--beside")
                session = onnxruntime.InferenceSession(str(model))
                feeds = {feed: numpy.array(synthetic_data.batch(feed, settings.SEED, 0, 4, 8, 32), numpy.int32)
                         for feed in ("tokens", "targets")}
                options = ["--set", f"training.seed={settings.SEED}"]
                ours = weir_runs.losses(PROGRAM, scratch, options, steps=1)[0]
                self.assertAlmostEqual(float(session.run(["loss"], feeds)[0]), ours, places=5)

    def test_every_model_has_the_losses_of_pytorch_on_every_mesh(self):
        self.assertEqual([folder.name for folder in FIXTURES], ["gpt_16", "gpt_17", "mlp_15"])
        for folder in FIXTURES:
            theirs = json.loads((folder / "losses.json").read_text(encoding="utf-8"))["losses"]
            with tempfile.TemporaryDirectory() as scratch:
                imported(folder, scratch)
                settled = [part for change in TRAINING for part in ("--set", change)]
                for run, options in weir_runs.RUNS.items():
                    if folder.name.startswith("mlp") and ("tp" in run or "pp" in run):
                        continue  # no rule of an import speaks of its dimensions, and it has no equal layers
                    with self.subTest(model=folder.name, run=run):
                        found = weir_runs.difference(weir_runs.losses(PROGRAM, scratch, settled + options), theirs)
                        print(f"{folder.name:16} {run:24} {found:.1e}")
                        self.assertLessEqual(found, weir_runs.LOSS_TOLERANCE)

    def test_what_the_exporter_spelled_out_is_one_operation_again(self):
        for folder in FIXTURES:
            if not folder.name.startswith("gpt"):
                continue
            with self.subTest(model=folder.name), tempfile.TemporaryDirectory() as scratch:
                text = imported(folder, scratch)
                # The two layers are two calls of one function; the last norm is no part of a layer.
                for op, count in {"attention": 1, "layer_norm": 3, "gelu_exact": 1, "embedding": 1, "softmax": 0,
                                  "transpose": 0, "batched_matmul": 0, "erf": 0, "call": 2}.items():
                    self.assertEqual(text.count(f'op: "{op}"'), count, op)
                self.assertIn('name: "blocks.1" op: "call"', " ".join(text.split()))

    def test_the_width_of_the_model_is_not_called_heads(self):
        for folder in FIXTURES:
            if not folder.name.startswith("gpt"):
                continue
            with self.subTest(model=folder.name), tempfile.TemporaryDirectory() as scratch:
                text = imported(folder, scratch)
                self.assertRegex(text, r'name: "blocks.0.query.weight"|"query.weight"')
                self.assertRegex(text, r"f32\[hidden, heads\*head_dim\]")


if __name__ == "__main__":
    unittest.main()
