"""Compares Muon on weights of convolutions, as matrices of their first dimension by all others, with its formula.

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

from tests.oracle import optimizers, safetensors_file

WEIR = "tools/weir"
STEPS, RATE = 15, 0.01
TOLERANCE = 1e-3  # relative, of losses
WEIGHT_TOLERANCE = 1e-2  # of the way of a weight
# A wide matrix, one whose second dimension has one element, and a tall one.
SHAPES = {"stem": (6, 3, 3, 3), "depthwise": (6, 1, 3, 3), "pointwise": (12, 6, 1, 1), "head": (12, 5)}
JOB = """
name: "convolutions"
graph {
  dim { name: "batch" size: 8 }
  dim { name: "colours" size: 3 }
  dim { name: "channels" size: 6 }
  dim { name: "deep" size: 12 }
  dim { name: "height" size: 5 }
  dim { name: "width" size: 4 }
  dim { name: "window" size: 3 }
  dim { name: "one" size: 1 }
  dim { name: "classes" size: 5 }
  function {
    name: "main"
    input { name: "images" type: "f32[batch, colours, height, width]" }
    input { name: "labels" type: "i32[batch]" }
    parameter { name: "stem" type: "f32[channels, colours, window, window]" }
    parameter { name: "depthwise" type: "f32[channels, one, window, window]" }
    parameter { name: "pointwise" type: "f32[deep, channels, one, one]" }
    parameter { name: "head" type: "f32[deep, classes]" }
    node { name: "c" op: "conv" input: ["images", "stem"] PADDING attr { name: "to" value { s: "batch, channels, height, width" } } }
    node { name: "a" op: "relu" input: "c" }
    node { name: "d" op: "conv" input: ["a", "depthwise"] PADDING attr { name: "groups" value { i: 6 } }
      attr { name: "to" value { s: "batch, channels, height, width" } } }
    node { name: "p" op: "conv" input: ["d", "pointwise"] attr { name: "to" value { s: "batch, deep, height, width" } } }
    node { name: "b" op: "relu" input: "p" }
    node { name: "pooled" op: "reduce_mean" input: "b" attr { name: "axes" value { ints { values: [2, 3] } } } }
    node { name: "logits" op: "matmul" input: ["pooled", "head"] }
    node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
    node { name: "loss" op: "reduce_mean" input: "losses" }
    output: "loss"
  }
  main: "main"
}
rule { dim: "batch" axis: "dp" }
rule { dim: "channels" axis: "tp" }
data { arrays { array { name: "images" path: "FOLDER/images.npy" } array { name: "labels" path: "FOLDER/labels.npy" } } }
training { steps: 15 optimizer { muon { adjust: RMS FLATTEN } } schedule { learning_rate: 0.01 } }
""".replace("PADDING", 'attr { name: "padding" value { ints { values: [1, 1] } } }')


def of_pytorch(weights, images, labels, flatten=True):
    """Returns the losses, and the weights after the steps."""
    weights = {name: torch.from_numpy(value).double().requires_grad_() for name, value in weights.items()}
    optimizer = optimizers.Muon([{"params": list(weights.values()), "lr": RATE, "weight_decay": 0.0}],
                                {"adjust": "RMS", "flatten": flatten})
    images, labels = torch.from_numpy(images).double(), torch.from_numpy(labels).long()
    losses = []
    for _ in range(STEPS):
        x = F.relu(F.conv2d(images, weights["stem"], padding=1))
        x = F.conv2d(x, weights["depthwise"], padding=1, groups=6)
        x = F.relu(F.conv2d(x, weights["pointwise"])).mean((2, 3))
        loss = F.cross_entropy(x @ weights["head"], labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return numpy.array(losses), {name: value.detach().numpy() for name, value in weights.items()}


class MuonFlatten(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.set_num_threads(1)
        random = numpy.random.default_rng(7)
        self.images = random.normal(0, 1, (8, 3, 5, 4)).astype("f4")
        self.labels = random.integers(0, 5, 8).astype("i4")
        numpy.save(self.path("images.npy"), self.images)
        numpy.save(self.path("labels.npy"), self.labels)
        self.first = {name: random.normal(0, 0.4, shape).astype("f4") for name, shape in SHAPES.items()}
        safetensors_file.write(self.path("first.safetensors"), self.first)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, flatten, *words):
        with open(self.path("job.textproto"), "w", encoding="utf-8") as out:
            out.write(JOB.replace("FOLDER", self.folder).replace("FLATTEN", "flatten: true" if flatten else ""))
        run = subprocess.run([WEIR, "train", self.path("job.textproto"), "--init", self.path("first.safetensors"),
                              "--save", self.path("out.safetensors"), "--metrics", self.path("metrics.jsonl"), *words],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("metrics.jsonl"), encoding="utf-8") as lines:
            losses = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
        weights = safetensors_file.read(self.path("out.safetensors"))[0]
        return numpy.array(losses), {name: value.numpy() for name, value in weights.items()}

    def check(self, found, expected):
        self.assertEqual(len(found[0]), STEPS)
        numpy.testing.assert_allclose(found[0], expected[0], rtol=TOLERANCE)
        for name, weight in expected[1].items():
            way = numpy.linalg.norm(weight - self.first[name])
            self.assertLessEqual(numpy.linalg.norm(found[1][name] - weight) / way, WEIGHT_TOLERANCE, name)

    def test_every_layout_has_the_updates_of_the_formula(self):
        expected = of_pytorch(self.first, self.images, self.labels)
        for words in ([], ["--mesh", "dp=2"], ["--mesh", "tp=2"], ["--mesh", "dp=2,tp=2"],
                      ["--mesh", "dp=4", "--set", "training.zero_stage=1"],
                      ["--mesh", "dp=2,tp=2", "--set", "training.zero_stage=3"]):
            with self.subTest(words=words):
                self.check(self.train(True, *words), expected)

    def test_without_flatten_weights_of_convolutions_take_adamw(self):
        expected = of_pytorch(self.first, self.images, self.labels, flatten=False)
        self.check(self.train(False, "--mesh", "dp=2"), expected)
        with_flatten = of_pytorch(self.first, self.images, self.labels)
        self.assertGreater(numpy.abs(with_flatten[0] / expected[0] - 1).max(), 10 * TOLERANCE)


if __name__ == "__main__":
    unittest.main()
