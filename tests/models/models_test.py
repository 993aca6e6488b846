"""Trains the fixtures by Weir on several meshes and compares with the losses that PyTorch had. No PyTorch is needed.

A fixture is a model of PyTorch that the package weir has translated: tests/models/regenerate makes them all again.
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

from tests.models import weir_runs

PROGRAM = pathlib.Path("tools/weir").resolve()
FIXTURES = sorted(path.parent for path in pathlib.Path("tests/models").glob("*/losses.json"))
WEIGHTS_BYTES_MAX = 100_000


def torch_losses(folder):
    return json.loads((folder / "losses.json").read_text(encoding="utf-8"))["losses"]


def tensors_of(path):
    """Returns the type, the shape and the bytes of each tensor of a safetensors file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    return {name: (entry["dtype"], entry["shape"], data[slice(*(begin + at for at in entry["data_offsets"]))])
            for name, entry in header.items() if name != "__metadata__"}


class ModelsTest(unittest.TestCase):

    def test_every_model_has_the_losses_of_pytorch_on_every_mesh(self):
        worst = {}
        for folder in FIXTURES:
            theirs = torch_losses(folder)
            for run in weir_runs.runs_of(folder.name):
                with self.subTest(model=folder.name, run=run):
                    found = weir_runs.difference(
                        weir_runs.losses(PROGRAM, folder, weir_runs.options_of(folder.name, run)), theirs)
                    worst[folder.name, run] = found
                    self.assertLessEqual(found, weir_runs.LOSS_TOLERANCE)
        for (model, run), found in worst.items():
            print(f"{model:16} {run:24} {found:.1e}")

    def test_another_training_has_other_losses(self):
        for folder in FIXTURES:
            for change in ("training.schedule.learning_rate=0.00303", "training.optimizer.adamw.beta2=0.98"):
                with self.subTest(model=folder.name, change=change):
                    ours = weir_runs.losses(PROGRAM, folder, ["--set", change])
                    self.assertGreater(weir_runs.difference(ours, torch_losses(folder)), 3 * weir_runs.LOSS_TOLERANCE)

    def test_weights_leave_under_the_names_of_the_module_and_come_back(self):
        for folder in FIXTURES:
            with self.subTest(model=folder.name), tempfile.TemporaryDirectory() as scratch:
                job, weights = folder / "job.textproto", folder / "weights.safetensors"
                public, back = pathlib.Path(scratch, "public.safetensors"), pathlib.Path(scratch, "back.safetensors")
                for words in (["export", job, "--weights", weights, "--safetensors", public],
                              ["weights", "convert", job, public, "-o", back]):
                    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(tensors_of(back), tensors_of(weights))

    def test_the_fixtures_are_there_and_small(self):
        self.assertEqual([folder.name for folder in FIXTURES],
                         ["alibi", "bert", "bert_padded", "convnext", "dlrm", "encoder", "encoder_decoder", "gemma2",
                          "gpt", "gpt2", "gpt2_padded", "gpt_neo", "linear_attention", "llama", "mingpt", "mistral",
                          "mlp", "moe", "neox", "qwen2", "resnet", "t5", "unet", "vit", "whisper"])
        for folder in FIXTURES:
            self.assertLess((folder / "weights.safetensors").stat().st_size, WEIGHTS_BYTES_MAX)


if __name__ == "__main__":
    unittest.main()
