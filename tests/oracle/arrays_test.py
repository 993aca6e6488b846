"""Tests that a model trains from arrays of one's own as PyTorch trains from the same arrays.

The targets are -100 where they do not count, an attention mask of int64 chooses the tokens that the model averages, and
features are of float64. A batch is the whole of the arrays, so the order of samples does not matter.
"""

import json
import os
import shutil
import subprocess
import tempfile
import types
import unittest
from unittest import mock

import numpy
import torch
import torch.nn.functional as F

import weir

WEIR = "tools/weir"
BATCH, SEQUENCE, VOCAB, WIDTH, STEPS, RATE = 8, 6, 11, 4, 5, 0.5
JOB = """
name: "own"
graph {
  dim { name: "batch" size: 8 }
  dim { name: "sequence" size: 6 }
  dim { name: "vocab" size: 11 }
  dim { name: "width" size: 4 }
  function {
    name: "main"
    input { name: "ids" type: "i32[batch, sequence]" }
    input { name: "mask" type: "bool[batch, sequence]" }
    input { name: "features" type: "f32[batch, sequence, width]" }
    input { name: "targets" type: "i32[batch, sequence]" }
    parameter { name: "table" type: "f32[vocab, width]" init { normal { std: 0.5 } } }
    parameter { name: "w" type: "f32[width, vocab]" init { normal { std: 0.5 } } }
    node { name: "looked_up" op: "embedding" input: ["table", "ids"] }
    node { name: "x" op: "add" input: ["looked_up", "features"] }
    node { name: "logits" op: "matmul" input: ["x", "w"] }
    node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "targets"] attr { name: "ignore_index" value { ints { values: -100 } } } }
    node { name: "chosen" op: "where" input: ["mask", "losses"] attr { name: "value" value { f: 0 } } }
    node { name: "counts" op: "not_equal" input: "targets" attr { name: "value" value { f: -100 } } }
    node { name: "both" op: "logical_and" input: ["counts", "mask"] }
    node { name: "ones" op: "cast" input: "both" attr { name: "to" value { s: "f32" } } }
    node { name: "count" op: "reduce_sum" input: "ones" }
    node { name: "count_of_step" op: "step_mean" input: "count" }
    node { name: "total" op: "reduce_sum" input: "chosen" }
    node { name: "loss" op: "div" input: ["total", "count_of_step"] }
    output: "loss"
  }
  main: "main"
}
rule { dim: "batch" axis: "dp" }
rule { dim: "width" axis: "tp" }
data { arrays { path: "FOLDER/own.npz" } feed { input: "ids" from: "tokens" } }
training { steps: 5 optimizer { sgd {} } schedule { learning_rate: 0.5 } }
"""


class Arrays(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        random = numpy.random.RandomState(3)
        self.arrays = {"tokens": random.randint(0, VOCAB, (BATCH, SEQUENCE)),
                       "mask": (random.rand(BATCH, SEQUENCE) < 0.8).astype("int64"),
                       "features": random.randn(BATCH, SEQUENCE, WIDTH),
                       "targets": numpy.where(random.rand(BATCH, SEQUENCE) < 0.3, -100,
                                              random.randint(0, VOCAB, (BATCH, SEQUENCE)))}
        numpy.savez(self.path("own.npz"), **self.arrays)
        with open(self.path("job.textproto"), "w", encoding="utf-8") as out:
            out.write(JOB.replace("FOLDER", self.folder))

    def path(self, name):
        return os.path.join(self.folder, name)

    def weir(self, *words):
        return subprocess.run([WEIR, *words], capture_output=True, text=True, check=False)

    def losses(self, *words):
        run = self.weir("train", self.path("job.textproto"), "--metrics", self.path("metrics.jsonl"), *words)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("metrics.jsonl"), encoding="utf-8") as lines:
            return [record["loss"] for record in map(json.loads, lines) if "loss" in record]

    def of_pytorch(self, weights):
        table, w = (torch.tensor(weights[name], requires_grad=True) for name in ("table", "w"))
        tokens, mask, targets = (torch.tensor(self.arrays[name]) for name in ("tokens", "mask", "targets"))
        features = torch.tensor(self.arrays["features"]).float()
        counted = torch.where(mask.bool(), targets, torch.tensor(-100))
        losses = []
        for _ in range(STEPS):
            logits = (table[tokens] + features) @ w
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), counted.reshape(-1), ignore_index=-100)
            gradients = torch.autograd.grad(loss, [table, w])
            with torch.no_grad():
                for parameter, gradient in zip((table, w), gradients):
                    parameter -= RATE * gradient
            losses.append(float(loss))
        return losses

    def read_weights(self, path):
        with open(path, "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:8 + size])
        return {name: numpy.frombuffer(data[8 + size:][slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
                for name, entry in entries.items() if name != "__metadata__"}

    def first_weights(self):
        """Returns the path of the weights with which runs begin, and PyTorch's losses with them."""
        saved = self.path("first.safetensors")
        # A step of almost no rate leaves the weights as the job draws them.
        run = self.weir("train", self.path("job.textproto"), "--steps", "1", "--save", saved, "--set",
                        "training.schedule.learning_rate=1e-30")
        self.assertEqual(run.returncode, 0, run.stderr)
        return saved, self.of_pytorch({name: value.copy() for name, value in self.read_weights(saved).items()})

    def test_losses_are_those_of_pytorch_on_every_mesh_and_with_micro_batches(self):
        saved, expected = self.first_weights()
        for words in ([], ["--mesh", "dp=2"], ["--mesh", "dp=2,tp=2"], ["--set", "training.micro_batches=4"]):
            with self.subTest(words=words):
                numpy.testing.assert_allclose(self.losses(*words, "--init", saved), expected, rtol=1e-5)

    def test_python_takes_the_arrays_themselves(self):
        saved, expected = self.first_weights()
        body = JOB[JOB.index("  dim {"):JOB.index("}\nrule {")]
        graph = types.SimpleNamespace(model="own", text=body, weight_map=lambda: "",
                                      write_weights=lambda path: shutil.copy(saved, path))
        data = {"tokens": torch.tensor(self.arrays["tokens"]), "mask": self.arrays["mask"].astype(bool),
                "features": self.arrays["features"].astype("float32"), "targets": self.arrays["targets"],
                "feed": {"ids": "tokens"}}
        with mock.patch.dict(os.environ, {"WEIR": os.path.abspath(WEIR)}):
            job = weir.job(graph, data=data, steps=STEPS, optimizer=weir.Sgd(lr=RATE), mesh="dp=2",
                           rules={"batch": "dp"})
            job.write(self.path("run"))
            losses = [metrics["loss"] for metrics in weir.train(job, processes=2)]
        numpy.testing.assert_allclose(losses, expected, rtol=1e-5)
        with self.assertRaisesRegex(weir.Error, "array targets: expected 8 samples, as array tokens has; found 3"):
            weir.job(graph, data={**data, "targets": data["targets"][:3]}, steps=1)

    def test_arrays_that_do_not_fit_the_model_are_refused_before_the_first_step(self):
        job = self.path("job.textproto")
        with open(job, encoding="utf-8") as file:
            text = file.read()
        for old, new, found in (
                (' attr { name: "ignore_index" value { ints { values: -100 } } }', "", "ignore_index: -100"),
                ("sequence\" size: 6", "sequence\" size: 7", "W0792"),
                ("vocab\" size: 11", "vocab\" size: 10", "W0793"),
                ("from: \"tokens\"", "from: \"features\"", "W0792"),
                ("from: \"tokens\"", "from: \"token\"", "W0055")):
            with self.subTest(new=new):
                self.assertIn(old, text)
                with open(job, "w", encoding="utf-8") as out:
                    out.write(text.replace(old, new))
                check = self.weir("check", job)
                self.assertEqual(check.returncode, 65, check.stderr)
                self.assertIn(found, check.stderr)


if __name__ == "__main__":
    unittest.main()
