"""Trains a recommender and a mixture of experts, and compares the losses with PyTorch's.

Both sides start with the same weights and have the same batches, 20 steps of AdamW long. PyTorch computes in double
precision. Weir gives PyTorch's losses on every mesh: with the samples, the rows of tables, their columns, or the
experts split over devices.
"""

import json
import math
import os
import re
import subprocess
import tempfile
import unittest

import torch
import torch.nn.functional as F

from tests.models import synthetic_data
from weir import safetensors_file

# What the jobs say.
STEPS, SEED = 20, 4
RATE, BETAS, EPSILON = 0.01, (0.9, 0.99), 1e-8
ROWS = {"user_ids": 40, "item_ids": 24, "kind_ids": 7}
TOLERANCE = 1e-5
MESHES = ("", "dp=2", "tp=2", "cols=2", "dp=2,tp=2")


def dlrm(weights, data):
    def dense(x, layer):
        return x @ weights[layer + ".w"] + weights[layer + ".b"]

    x = dense(dense(data["dense"], "bottom1").relu(), "bottom2").relu()
    bags = [F.embedding_bag(data[name + "_ids"], weights[name + "s.table"], mode="sum") for name in ("user", "item")]
    vectors = torch.stack([x, *bags, weights["kinds.table"][data["kind_ids"]]], 1)
    rows, columns = torch.tril_indices(4, 4, offset=-1)
    pairs = (vectors @ vectors.transpose(1, 2))[:, rows, columns]
    y = dense(dense(torch.cat([x, pairs], 1), "top1").relu(), "top2")
    return F.binary_cross_entropy_with_logits(y, data["targets"])


def experts(weights, data):
    h = F.gelu(data["x"] @ weights["embed.w"] + weights["embed.b"])
    values, places = (h @ weights["router.w"]).topk(2)
    count = weights["router.w"].shape[1]
    y = h.clone()
    for up, up_bias, down, e in zip(weights["up.w"].chunk(count, 1), weights["up.b"].chunk(count),
                                    weights["down.w"].chunk(count), range(count)):
        gate = (values.softmax(-1) * (places == e)).sum(-1, keepdim=True)
        y = y + gate * (F.gelu(h @ up + up_bias) @ down)
    return F.mse_loss(y @ weights["head.w"] + weights["head.b"], data["targets"])


MODELS = {"dlrm": dlrm, "experts": experts}


def sizes(job):
    """Returns {name: sizes} of the parameters, and of the inputs, of the job's text."""
    dims = {name: int(size) for name, size in re.findall(r'dim { name: "(\w+)" size: (\d+) }', job)}
    declared = []
    for kind in ("parameter", "input"):
        found = re.findall(kind + r' { name: "([\w.]+)" type: "\w+\[([^\]]*)\]"', job)
        declared.append({name: [math.prod(dims[atom.strip()] for atom in item.split("*")) for item in items.split(",")]
                         for name, items in found})
    return declared


class Model:
    """A Model is a job with first weights, and the losses that PyTorch has."""

    def __init__(self, name):
        self.name = name
        self.job = f"tests/oracle/testdata/{name}.textproto"
        with open(self.job, encoding="utf-8") as file:
            parameters, self.inputs = sizes(file.read())
        torch.manual_seed(3)
        # Weir reads weights in f32.
        self.weights = {weight: 0.4 * torch.randn(shape) for weight, shape in parameters.items()}

    def batch(self, step):
        data = {}
        for name, shape in self.inputs.items():
            below = ROWS.get(name)
            rows = synthetic_data.batch(name, SEED, step, shape[0], math.prod(shape[1:]), below)
            data[name] = torch.tensor(rows, dtype=torch.float64 if below is None else torch.long).reshape(shape)
        return data

    def losses_of_pytorch(self):
        weights = {name: value.double().requires_grad_() for name, value in self.weights.items()}
        optimizer = torch.optim.AdamW(weights.values(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=0)
        losses = []
        for step in range(STEPS):
            loss = MODELS[self.name](weights, self.batch(step))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def losses_of_weir(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            weights = os.path.join(folder, "weights.safetensors")
            safetensors_file.write(weights, {
                name: ("F32", tuple(value.shape), lambda value=value: value.numpy().tobytes())
                for name, value in self.weights.items()})
            metrics = os.path.join(folder, "metrics.jsonl")
            done = subprocess.run(["tools/weir", "train", self.job, "--init", weights, "--metrics", metrics, *options],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise AssertionError(f"{' '.join(options)}: {done.stderr}")
            with open(metrics, encoding="utf-8") as file:
                return [json.loads(line)["loss"] for line in file]


def difference(ours, theirs):
    if len(ours) != len(theirs):
        raise AssertionError(f"expected {len(theirs)} steps; found {len(ours)}")
    return max(abs(a - b) for a, b in zip(ours, theirs))


class Recommender(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)  # the products are small
        cls.models = [Model(name) for name in MODELS]
        cls.theirs = [model.losses_of_pytorch() for model in cls.models]

    def test_every_mesh_has_the_losses_of_pytorch(self):
        for model, theirs in zip(self.models, self.theirs):
            for mesh in MESHES:
                with self.subTest(model=model.name, mesh=mesh):
                    ours = model.losses_of_weir(*(["--mesh", mesh] if mesh else []))
                    self.assertLessEqual(difference(ours, theirs), TOLERANCE)

    def test_the_models_learn_in_bf16(self):
        for model in self.models:
            with self.subTest(model=model.name):
                ours = model.losses_of_weir("--set", "training.precision=BF16", "--mesh", "dp=2,tp=2")
                self.assertLess(sum(ours[-5:]), sum(ours[:5]))

    def test_the_models_learn_and_another_rate_is_told_apart(self):
        for model, theirs in zip(self.models, self.theirs):
            with self.subTest(model=model.name):
                self.assertLess(sum(theirs[-5:]), sum(theirs[:5]))
                other = model.losses_of_weir("--set", "training.schedule.learning_rate=0.0102")
                self.assertGreater(difference(other, theirs), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
