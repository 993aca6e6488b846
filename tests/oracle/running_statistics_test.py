"""Tests that the running statistics of batch normalisation are those of PyTorch, whatever the layout.

Every step has the same samples, so their order does not matter.
"""

import json
import os
import struct
import subprocess
import tempfile
import unittest

import numpy
import torch
import torch.nn.functional as F

WEIR = "tools/weir"
STEPS, RATE, MOMENTUM = 20, 0.3, 0.2
JOB = """
name: "statistics"
graph {
  dim { name: "batch" size: 8 }
  dim { name: "channels" size: 6 }
  dim { name: "colours" size: 3 }
  dim { name: "rows" size: 5 }
  dim { name: "columns" size: 4 }
  dim { name: "height" size: 3 }
  dim { name: "width" size: 3 }
  dim { name: "classes" size: 5 }
  function {
    name: "stem"
    input { name: "images" type: "f32[batch, colours, rows, columns]" }
    parameter { name: "conv.weight" type: "f32[channels, colours, height, width]" }
    parameter { name: "norm.weight" type: "f32[channels]" }
    parameter { name: "norm.bias" type: "f32[channels]" }
    parameter { name: "norm.running_mean" type: "f32[channels]" }
    parameter { name: "norm.running_var" type: "f32[channels]" }
    node { name: "c" op: "conv" input: ["images", "conv.weight"] attr { name: "padding" value { ints { values: [1, 1] } } }
      attr { name: "to" value { s: "batch, channels, rows, columns" } } }
    node { name: "mean" op: "reduce_mean" input: "c" AXES attr { name: "out_dtype" value { s: "f32" } } }
    node { output: ["variance", "unbiased"] op: "reduce_variance" input: ["c", "mean"] AXES }
    node { name: "m" op: "moving_average" input: ["mean", "norm.running_mean"] attr { name: "momentum" value { f: 0.2 } } }
    node { name: "v" op: "moving_average" input: ["variance", "norm.running_var", "unbiased"] attr { name: "momentum" value { f: 0.2 } } }
    node { name: "n" op: "normalize" input: ["c", "m", "v", "norm.weight", "norm.bias"] AXES }
    node { name: "y" op: "relu" input: "n" }
    output: "y"
  }
  function {
    name: "main"
    input { name: "images" type: "f32[batch, colours, rows, columns]" }
    input { name: "labels" type: "i32[batch]" }
    parameter { name: "head.weight" type: "f32[channels, classes]" }
    node { name: "stem" op: "call" function: "stem" input: "images" output: "y" }
    node { name: "pooled" op: "reduce_mean" input: "y" attr { name: "axes" value { ints { values: [2, 3] } } } }
    node { name: "logits" op: "matmul" input: ["pooled", "head.weight"] }
    node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
    node { name: "loss" op: "reduce_mean" input: "losses" }
    output: "loss"
  }
  main: "main"
}
rule { dim: "batch" axis: "dp" }
rule { dim: "channels" axis: "tp" }
data { arrays { array { name: "images" path: "FOLDER/images.npy" held_out_path: "FOLDER/held_images.npy" }
                array { name: "labels" path: "FOLDER/labels.npy" held_out_path: "FOLDER/held_labels.npy" } } }
training { steps: 20 optimizer { sgd {} } schedule { learning_rate: 0.3 } }
""".replace("AXES", 'attr { name: "axes" value { ints { values: [0, 2, 3] } } }')


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Module()
        self.stem.conv = torch.nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.stem.norm = torch.nn.BatchNorm2d(6, momentum=MOMENTUM)
        self.head = torch.nn.Module()
        self.head.weight = torch.nn.Parameter(torch.randn(6, 5) / 2)

    def forward(self, images):
        return torch.relu(self.stem.norm(self.stem.conv(images))).mean((2, 3)) @ self.head.weight


class RunningStatistics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(5)
        self.data = {}
        for part in ("", "held_"):
            self.give(part, 3 * torch.rand(8, 3, 5, 4) - 1, torch.randint(0, 5, (8,)))
        with open(self.path("job.textproto"), "w", encoding="utf-8") as out:
            out.write(JOB.replace("FOLDER", self.folder))
        self.model = Model()
        self.write_weights("first.safetensors")

    def path(self, name):
        return os.path.join(self.folder, name)

    def give(self, part, images, labels):
        self.data[part] = (images, labels)
        numpy.save(self.path(f"{part}images.npy"), images.numpy())
        numpy.save(self.path(f"{part}labels.npy"), labels.numpy())

    def state(self):
        return {name: value for name, value in self.model.state_dict().items() if value.is_floating_point()}

    def write_weights(self, name):
        header, data = {}, b""
        for key, value in self.state().items():
            bytes_of_value = value.numpy().astype("<f4").tobytes()
            header[key] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(bytes_of_value)]}
            data += bytes_of_value
        text = json.dumps(header).encode()
        with open(self.path(name), "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + data)

    def weir(self, *words):
        run = subprocess.run([WEIR, *words], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def train(self, *words):
        """Returns the losses of the steps, the last evaluation, and the weights after the steps."""
        out = self.path("out.safetensors")
        self.weir("train", self.path("job.textproto"), "--init", self.path("first.safetensors"), "--save", out, "--metrics",
                  self.path("metrics.jsonl"), *words)
        with open(self.path("metrics.jsonl"), encoding="utf-8") as lines:
            records = list(map(json.loads, lines))
        evaluations = [record["eval_loss"] for record in records if "eval_loss" in record]
        return [record["loss"] for record in records if "loss" in record], evaluations[-1], self.read(out)

    def read(self, path):
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(size)), file.read()
        return {name: numpy.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
                for name, entry in header.items() if entry.get("dtype") == "F32"}

    def of_pytorch(self, steps=STEPS):
        """Trains the model with PyTorch; returns the losses and the loss of an evaluation."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        losses = []
        self.model.train()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(self.data[""][0]), self.data[""][1])
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        self.model.eval()
        with torch.no_grad():
            return losses, float(F.cross_entropy(self.model(self.data["held_"][0]), self.data["held_"][1]))

    def check(self, found, expected):
        numpy.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
        self.assertAlmostEqual(found[1], expected[1], delta=2e-5 * expected[1])
        for name, value in self.state().items():
            numpy.testing.assert_allclose(found[2][name], value.numpy(), rtol=2e-4, atol=2e-5, err_msg=name)

    def test_twenty_steps_and_an_evaluation_are_those_of_pytorch_on_every_layout(self):
        expected = self.of_pytorch()
        for words in ([], ["--mesh", "dp=2"], ["--mesh", "tp=2"], ["--mesh", "dp=2,tp=2"], ["--mesh", "pp=2"],
                      ["--mesh", "dp=2", "--set", "training.zero_stage=3"], ["--mesh", "dp=4", "--set", "training.zero_stage=1"],
                      ["--mesh", "dp=2", "--processes", "2"]):
            with self.subTest(words=words):
                self.check(self.train(*words), expected)

    def test_an_update_takes_the_mean_of_the_micro_batches_and_steps(self):
        # Parts of a batch of copies have the statistics of the batch, but for the count behind the unbiased variance.
        images, labels = self.data[""]
        self.give("", images[:1].repeat(8, 1, 1, 1), labels[:1].repeat(8))
        first = {name: value.clone() for name, value in self.model.state_dict().items()}
        for words, copies, updates in (
                (["--set", "training.micro_batches=2"], 4, 20),
                (["--set", "training.micro_batches=4", "--mesh", "pp=2"], 2, 20),
                (["--set", "training.update_every=2"], 8, 10),
                (["--set", "training.update_every=2", "--set", "training.update_phase=0", "--mesh", "dp=2"], 8, 10)):
            with self.subTest(words=words):
                self.model.load_state_dict(first)
                self.data[""] = (images[:1].repeat(copies, 1, 1, 1), labels[:1].repeat(copies))
                expected = self.of_pytorch(updates)
                found = self.train(*words)
                every = STEPS // updates
                self.check((found[0][::every], *found[1:]), expected)

    def test_a_run_that_stops_and_resumes_has_the_same_statistics(self):
        whole = self.train("--mesh", "dp=2")
        checkpoint, out = self.path("checkpoint.safetensors"), self.path("out.safetensors")
        self.train("--mesh", "dp=2", "--steps", "8", "--checkpoint", checkpoint)
        self.weir("train", self.path("job.textproto"), "--mesh", "tp=2", "--resume", checkpoint, "--save", out)
        self.assertLess(numpy.abs(self.read(out)["stem.norm.running_var"] - whole[2]["stem.norm.running_var"]).max(), 1e-5)

    def test_a_step_without_a_finite_gradient_leaves_the_statistics_as_they_are(self):
        images, labels = self.data[""]
        self.give("", torch.where(images > 1.9, torch.tensor(1e38), images), labels)
        first = {name: value.numpy().copy() for name, value in self.state().items()}
        run = subprocess.run([WEIR, "train", self.path("job.textproto"), "--init", self.path("first.safetensors"), "--save",
                              self.path("out.safetensors"), "--on-nonfinite", "skip", "--steps", "2"],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        for name, value in first.items():
            numpy.testing.assert_array_equal(self.read(self.path("out.safetensors"))[name], value, err_msg=name)


if __name__ == "__main__":
    unittest.main()
