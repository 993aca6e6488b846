"""Compares low-rank adapters with PyTorch: the adapters train as in a few lines of PyTorch, and merge into the weights.

Every step has the same samples, so their order does not matter. PyTorch computes in double precision.
"""

import json
import os
import subprocess
import tempfile
import unittest

import numpy
import torch
import torch.nn.functional as F

from tests.oracle import safetensors_file

WEIR = "tools/weir"
STEPS, RATE, RANK, ALPHA = 20, 0.01, 3, 6.0
JOB = """
name: "classifier"
graph {
  dim { name: "batch" size: 16 }
  dim { name: "hidden" size: 12 }
  dim { name: "wide" size: 16 }
  dim { name: "classes" size: 5 }
  function {
    name: "layer"
    input { name: "x" type: "f32[batch, hidden]" }
    parameter { name: "up" type: "f32[hidden, wide]" decay: true }
    parameter { name: "up_bias" type: "f32[wide]" }
    parameter { name: "down" type: "f32[hidden, wide]" decay: true }
    node { name: "h" op: "matmul" input: ["x", "up", "up_bias"] attr { name: "activation" value { s: "gelu_exact" } } }
    node { name: "d" op: "matmul" input: ["h", "down"] attr { name: "transpose_w" value { b: true } } }
    node { name: "y" op: "add" input: ["x", "d"] }
    output: "y"
  }
  function {
    name: "main"
    input { name: "x" type: "f32[batch, hidden]" }
    input { name: "labels" type: "i32[batch]" }
    parameter { name: "head" type: "f32[hidden, classes]" decay: true }
    node { name: "layers" op: "call" function: "layer" input: "x" output: "encoded" repeat: 2 }
    node { name: "logits" op: "matmul" input: ["encoded", "head"] }
    node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
    node { name: "loss" op: "reduce_mean" input: "losses" }
    output: "loss"
  }
  main: "main"
}
rule { dim: "batch" axis: "dp" }
rule { dim: "wide" axis: "tp" }
data { arrays { array { name: "x" path: "FOLDER/x.npy" held_out_path: "FOLDER/held_x.npy" }
                array { name: "labels" path: "FOLDER/labels.npy" held_out_path: "FOLDER/held_labels.npy" } } }
training { steps: 20 optimizer { adamw { weight_decay: 0.1 } } schedule { learning_rate: 0.01 } }
"""
LAYERS = ("layers.0.", "layers.1.")


class Model(torch.nn.Module):
    """The classifier with adapters. `up` and `head` are [in, out], and `down` is [out, in]."""

    def __init__(self, weights, adapters):
        super().__init__()
        self.weights = {name: torch.from_numpy(value.copy()).double() for name, value in weights.items()}
        self.adapters = {name: torch.from_numpy(value.copy()).double().requires_grad_()
                         for name, value in adapters.items()}

    def product(self, name, x):
        a, b = self.adapters[name + ".lora_a"], self.adapters[name + ".lora_b"]
        if name.endswith("down"):
            return x @ self.weights[name].T + ALPHA / RANK * (x @ a.T @ b.T)
        return x @ self.weights[name] + ALPHA / RANK * (x @ a @ b)

    def forward(self, x):
        for layer in LAYERS:
            h = F.gelu(self.product(layer + "up", x) + self.weights[layer + "up_bias"])
            x = x + self.product(layer + "down", h)
        return self.product("head", x)


class Adapters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.set_num_threads(1)
        self.random = numpy.random.default_rng(3)
        self.data = {part: (self.numbers(16, 12, std=1.0), self.random.integers(0, 5, 16).astype("i4"))
                     for part in ("", "held_")}
        for part, (x, labels) in self.data.items():
            numpy.save(self.path(f"{part}x.npy"), x)
            numpy.save(self.path(f"{part}labels.npy"), labels)
        self.base = {"head": self.numbers(12, 5)}
        for layer in LAYERS:
            self.base.update({layer + "up": self.numbers(12, 16), layer + "up_bias": self.numbers(16),
                              layer + "down": self.numbers(12, 16)})
        with open(self.path("base.textproto"), "w", encoding="utf-8") as out:
            out.write(JOB.replace("FOLDER", self.folder))
        self.write("base.safetensors", self.base)
        self.weir("lora", "add", self.path("base.textproto"), "--rank", str(RANK), "--alpha", str(ALPHA), "-o",
                  self.path("tuned.textproto"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def numbers(self, *shape, std=0.3):
        return self.random.normal(0, std, shape).astype("f4")

    def write(self, name, weights):
        safetensors_file.write(self.path(name), weights)

    def read(self, name):
        return {key: value.numpy() for key, value in safetensors_file.read(self.path(name))[0].items()}

    def weir(self, *words):
        run = subprocess.run([WEIR, *words], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def first_adapters(self):
        """Returns adapters by name as the job begins with them: B is zeros."""
        adapters = {"head.lora_a": self.numbers(12, RANK), "head.lora_b": numpy.zeros((RANK, 5), "f4")}
        for layer in LAYERS:
            adapters.update({layer + "up.lora_a": self.numbers(12, RANK), layer + "up.lora_b": numpy.zeros((RANK, 16), "f4"),
                             layer + "down.lora_a": self.numbers(RANK, 16), layer + "down.lora_b": numpy.zeros((12, RANK), "f4")})
        return adapters

    def train(self, init, *words):
        """Returns the losses of the steps and the last evaluation. The weights go to out.safetensors."""
        self.weir("train", self.path("tuned.textproto"), "--init", self.path(init), "--save", self.path("out.safetensors"),
                  "--metrics", self.path("metrics.jsonl"), *words)
        with open(self.path("metrics.jsonl"), encoding="utf-8") as lines:
            records = list(map(json.loads, lines))
        return ([record["loss"] for record in records if "loss" in record],
                [record["eval_loss"] for record in records if "eval_loss" in record][-1])

    def evaluate(self, job, init):
        """Returns the losses of the samples and of those held out. A step with this rate changes no weight."""
        self.weir("train", self.path(job), "--init", self.path(init), "--steps", "1", "--metrics", self.path("one.jsonl"),
                  "--set", "training.schedule.learning_rate=1e-30")
        with open(self.path("one.jsonl"), encoding="utf-8") as lines:
            records = list(map(json.loads, lines))
        return (next(record["loss"] for record in records if "loss" in record),
                next(record["eval_loss"] for record in records if "eval_loss" in record))

    def of_pytorch(self, adapters):
        model = Model(self.base, adapters)
        optimizer = torch.optim.AdamW(model.adapters.values(), lr=RATE, weight_decay=0.1)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = self.loss(model, "")
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            return losses, self.loss(model, "held_").item(), model

    def loss(self, model, part):
        x, labels = self.data[part]
        return F.cross_entropy(model(torch.from_numpy(x).double()), torch.from_numpy(labels).long())

    def test_adapters_train_as_those_of_pytorch_on_every_mesh(self):
        adapters = self.first_adapters()
        losses, held_out, model = self.of_pytorch(adapters)
        self.assertLess(losses[-1], losses[0] - 0.2)
        self.write("first.safetensors", {**self.base, **adapters})
        for words in ([], ["--mesh", "dp=2"], ["--mesh", "tp=2"], ["--mesh", "pp=2"], ["--mesh", "dp=2,tp=2"],
                      ["--set", "training.micro_batches=4"], ["--mesh", "tp=2", "--processes", "2"]):
            with self.subTest(words=words):
                found, evaluation = self.train("first.safetensors", *words)
                numpy.testing.assert_allclose(found, losses, rtol=0, atol=2e-5)
                self.assertAlmostEqual(evaluation, held_out, delta=2e-5 * held_out)
                weights = self.read("out.safetensors")
                for name, value in model.adapters.items():
                    numpy.testing.assert_allclose(weights[name], value.detach().numpy(), rtol=2e-3, atol=2e-5, err_msg=name)
                for name, value in self.base.items():
                    numpy.testing.assert_array_equal(weights[name], value, err_msg=name)

    def test_a_job_begins_from_weights_without_adapters_as_it_was(self):
        base = self.evaluate("base.textproto", "base.safetensors")
        adapted = self.evaluate("tuned.textproto", "base.safetensors")
        numpy.testing.assert_allclose(adapted, base, rtol=1e-6)

    def test_the_small_file_and_the_merged_one_evaluate_as_the_adapted_job(self):
        _, held_out = self.train("base.safetensors")
        tuned = self.path("tuned.textproto")
        self.weir("lora", "extract", tuned, "--weights", self.path("out.safetensors"), "-o", self.path("small.safetensors"))
        self.assertEqual(sorted(self.read("small.safetensors")), sorted(self.first_adapters()))
        self.weir("lora", "join", tuned, "--weights", self.path("base.safetensors"), "--adapters",
                  self.path("small.safetensors"), "-o", self.path("joined.safetensors"))
        self.weir("lora", "merge", tuned, "--weights", self.path("base.safetensors"), "--adapters",
                  self.path("small.safetensors"), "-o", self.path("merged.safetensors"))
        before = self.evaluate("base.textproto", "base.safetensors")[1]
        self.assertGreater(abs(held_out - before), 0.01, "the adapters must have learnt something")
        for job, weights in (("tuned.textproto", "out.safetensors"), ("tuned.textproto", "joined.safetensors"),
                             ("base.textproto", "merged.safetensors")):
            with self.subTest(job=job, weights=weights):
                self.assertAlmostEqual(self.evaluate(job, weights)[1], held_out, delta=1e-5 * held_out)
        self.assertEqual(sorted(self.read("merged.safetensors")), sorted(self.base))

    def test_a_run_that_stops_and_resumes_on_another_mesh_ends_alike(self):
        whole, held_out = self.train("base.safetensors")
        self.weir("train", self.path("tuned.textproto"), "--init", self.path("base.safetensors"), "--steps", "8",
                  "--checkpoint", self.path("run/"), "--mesh", "dp=2")
        self.weir("train", self.path("tuned.textproto"), "--resume", self.path("run"), "--mesh", "tp=2", "--metrics",
                  self.path("rest.jsonl"))
        with open(self.path("rest.jsonl"), encoding="utf-8") as lines:
            records = list(map(json.loads, lines))
        losses = [record["loss"] for record in records if "loss" in record]
        numpy.testing.assert_allclose(losses, whole[8:], rtol=1e-5)
        self.assertAlmostEqual(records[-1].get("eval_loss", held_out), held_out, delta=1e-5 * held_out)


if __name__ == "__main__":
    unittest.main()
