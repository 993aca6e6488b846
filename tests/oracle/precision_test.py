"""Compares a job in bf16 with a part in f32, by a rule, with PyTorch: torch.autocast, and a last layer outside of it.

The logits lie near 64, where neighbours among the numbers of bf16 are 0.25 or 0.5 apart. A common offset does not
change the loss, so a last layer in f32 has the loss of small logits, and a last layer in bf16 has not. Every step has
the same samples.
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
STEPS, RATE, OFFSET = 20, 0.01, 64.0
# Relative. The layers in bf16 round at other places than those of PyTorch.
TOLERANCE = 0.02
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
    parameter { name: "up" type: "f32[hidden, wide]" }
    parameter { name: "down" type: "f32[wide, hidden]" }
    node { name: "h" op: "matmul" input: ["x", "up"] attr { name: "activation" value { s: "gelu_exact" } } }
    node { name: "d" op: "matmul" input: ["h", "down"] }
    node { name: "y" op: "add" input: ["x", "d"] }
    output: "y"
  }
  function {
    name: "main"
    input { name: "x" type: "f32[batch, hidden]" }
    input { name: "labels" type: "i32[batch]" }
    parameter { name: "head" type: "f32[hidden, classes]" }
    parameter { name: "offset" type: "f32[classes]" }
    node { name: "layers" op: "call" function: "layer" input: "x" output: "encoded" repeat: 2 }
    node { name: "logits" op: "matmul" input: ["encoded", "head", "offset"] }
    node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
    node { name: "loss" op: "reduce_mean" input: "losses" }
    output: "loss"
  }
  main: "main"
}
rule { dim: "batch" axis: "dp" }
rule { dim: "wide" axis: "tp" }
data { arrays { array { name: "x" path: "FOLDER/x.npy" } array { name: "labels" path: "FOLDER/labels.npy" } } }
training {
  steps: 20 precision: BF16 RULE
  optimizer { adamw {} } schedule { learning_rate: 0.01 }
}
"""
RULE = 'precision_of { pattern: "main/logits" pattern: "main/losses" precision: F32 }'


def losses_of_torch(weights, x, labels):
    """Returns the losses of a training whose layers compute under autocast, and whose last layer does not."""
    weights = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.0)
    x, labels = torch.from_numpy(x), torch.from_numpy(labels).long()
    losses = []
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16):
            encoded = x
            for layer in ("layers.0.", "layers.1."):
                h = F.gelu(encoded @ weights[layer + "up"])
                encoded = encoded + h @ weights[layer + "down"]
        loss = F.cross_entropy(encoded.float() @ weights["head"] + weights["offset"], labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return numpy.array(losses)


class Precision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.set_num_threads(1)
        random = numpy.random.default_rng(5)
        self.x = random.normal(0, 1, (16, 12)).astype("f4")
        self.labels = random.integers(0, 5, 16).astype("i4")
        numpy.save(self.path("x.npy"), self.x)
        numpy.save(self.path("labels.npy"), self.labels)
        shapes = {"head": (12, 5)}
        for layer in ("layers.0.", "layers.1."):
            shapes.update({layer + "up": (12, 16), layer + "down": (16, 12)})
        self.weights = {name: random.normal(0, 0.3, shape).astype("f4") for name, shape in shapes.items()}
        self.weights["offset"] = numpy.full(5, OFFSET, "f4")
        safetensors_file.write(self.path("start.safetensors"), self.weights)

    def path(self, name):
        return os.path.join(self.folder, name)

    def losses(self, rule, *words):
        with open(self.path("job.textproto"), "w", encoding="utf-8") as out:
            out.write(JOB.replace("FOLDER", self.folder).replace("RULE", rule))
        metrics = self.path("metrics.jsonl")
        run = subprocess.run([WEIR, "train", self.path("job.textproto"), "--init", self.path("start.safetensors"),
                              "--metrics", metrics, *words], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(metrics, encoding="utf-8") as lines:
            entries = [json.loads(line) for line in lines]
        return numpy.array([entry["loss"] for entry in entries if "loss" in entry])

    def test_a_layer_in_f32_beside_autocast_agrees_with_pytorch_on_every_mesh(self):
        expected = losses_of_torch(self.weights, self.x, self.labels)
        self.assertLess(expected[-1], expected[0] / 2)
        for mesh in ("", "dp=2", "tp=2", "dp=2,tp=2", "pp=2"):
            with self.subTest(mesh=mesh):
                found = self.losses(RULE, *(["--mesh", mesh] if mesh else []))
                self.assertEqual(len(found), STEPS)
                self.assertLessEqual(numpy.abs(found / expected - 1).max(), TOLERANCE)
        without = self.losses("")
        self.assertGreater(numpy.abs(without / expected - 1).max(), 3 * TOLERANCE, "the rule makes no difference")


if __name__ == "__main__":
    unittest.main()
