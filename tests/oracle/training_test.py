"""Compares training runs with PyTorch.

Both sides start with the same weights and batches and do fifty steps of AdamW or SGD. Weir gives the same losses,
gradient norms and final weights as PyTorch, however the run is split over devices and micro-batches.

PyTorch computes in double precision, so the differences are the rounding errors of Weir. The limits are:
  losses          |a - b| <= LOSS_TOLERANCE, at every step
  gradient norms  |a - b| <= NORM_TOLERANCE * b, at every step
  weights         ||a - b|| <= WEIGHT_TOLERANCE * ||b - initial||, for every tensor after the last step
The bias of the keys is the one tensor with a true gradient of zero, because it moves all scores of a query alike. Adam
scales up the rounding error of this gradient. The test therefore asks only that the bias stays near zero.
"""

import json
import os
import subprocess
import tempfile
import unittest

import torch

from tests.oracle import safetensors_file
from tests.oracle import transformers

STEPS = 50
LOSS_TOLERANCE = 2e-5
NORM_TOLERANCE = 1e-4
WEIGHT_TOLERANCE = 2e-4
KEY_BIAS_MAX = 0.01
BF16_LOSS_TOLERANCE = 0.05
F16_LOSS_TOLERANCE = 0.02


# (kind, its numbers, learning rate)
OPTIMIZERS = (
    ("lion", ["weight_decay=0.1", "beta2=0.98"], 2e-3),
    ("lamb", ["weight_decay=0.1"], 3e-2),
    ("adafactor", ["weight_decay=0.1"], 5e-2),
    ("muon", ["weight_decay=0.1", "adjust=RMS", "adamw.beta2=0.95"], 1e-2),
)
# Rounding decides the signs of directions near zero, so an element of a weight of Lion may end elsewhere.
FORMULA_LOSS_TOLERANCE = {"lion": 2e-2, "lamb": 5e-5, "adafactor": 5e-5, "muon": 1e-4}
FORMULA_WEIGHT_TOLERANCE = {"lion": 0.4, "lamb": 1e-3, "adafactor": 1e-3, "muon": 5e-3}


def activation_rule(dim, axis):
    return f'rule=dim: "{dim}" axis: "{axis}" scope: ACTIVATIONS'


# RUNS names the ways in which Weir may run a job, from one whole run on one device to runs that are split.
RUNS = {
    "one device": [],
    "two micro-batches": ["training.micro_batches=2"],
    "data and tensor parallel": ["mesh=dp=2,tp=2"],
    "uneven data parallel, ZeRO 2": ["mesh=dp=3,tp=2", "training.zero_stage=2"],
    "ZeRO 3 with micro-batches": ["mesh=dp=2,tp=2", "training.zero_stage=3", "training.micro_batches=2"],
    "pipeline": ["mesh=pp=2", "training.micro_batches=4"],
    "Megatron's sequence parallel": ["mesh=tp=2", activation_rule("sequence", "tp")],
}


class Run:
    """A Run is one run of Weir, read back from its output file."""

    def __init__(self, model, changes):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.safetensors")
            job = f"tests/oracle/testdata/{model}.textproto"
            subprocess.run(["tests/oracle/oracle_run", job, path, str(STEPS), *changes], check=True)
            self._tensors, notes = safetensors_file.read(path)
        self.job = json.loads(notes["job"])
        self.losses, self.grad_norms = self._tensors["loss"], self._tensors["grad_norm"]

    def weights(self, when):
        """Returns {name: weight}, without the state of the optimiser. `when` is "initial" or "final"."""
        prefix = when + "/"
        return {name[len(prefix):]: value.clone() for name, value in self._tensors.items()
                if name.startswith(prefix) and name.count("/") == 1}

    def batches(self):
        """Returns (tokens, targets) of each step, with the micro-batches joined."""
        return list(zip(self._tensors["data/tokens"].flatten(1, 2), self._tensors["data/targets"].flatten(1, 2)))


class Reference:
    """A Reference is the job of a Run, trained by PyTorch."""

    def __init__(self, run):
        self.job = run.job
        self.initial, self.batches = run.weights("initial"), run.batches()
        self.weights = run.weights("initial")
        losses, norms = transformers.train(run.job, self.weights, self.batches)
        self.losses = torch.tensor(losses, dtype=torch.float64)
        self.grad_norms = torch.tensor(norms, dtype=torch.float64)

    def loss_difference(self, run):
        return (run.losses - self.losses).abs().max().item()

    def weight_differences(self, run):
        """Returns {name: ||difference|| / ||way from the start||}, without frozen weights and biases of keys."""
        final = run.weights("final")
        return {name: ((final[name] - weight).norm() / (weight - self.initial[name]).norm()).item()
                for name, weight in transformers.trained(self.job, self.weights).items() if not name.endswith(".bk")}


class Training:
    """Holds the tests of one model. `model` names the job, and `heads` lists the dimensions that count heads."""

    @classmethod
    def setUpClass(cls):
        # The products are small, so more threads would only wait for each other.
        torch.set_num_threads(1)
        cls.reference = Reference(Run(cls.model, []))

    def test_every_way_to_run_agrees_with_pytorch(self):
        ulysses = ["mesh=sp=2"] + [activation_rule(dim, "sp") for dim in ["sequence", *self.heads]]
        for name, changes in [*RUNS.items(), ("Ulysses' sequence parallel", ulysses)]:
            with self.subTest(run=name):
                run = Run(self.model, changes)
                for ours, theirs in zip(run.batches(), self.reference.batches):
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(ours, theirs)), "other batches")
                self.assertLessEqual(self.reference.loss_difference(run), LOSS_TOLERANCE)
                norm_difference = (run.grad_norms / self.reference.grad_norms - 1).abs().max().item()
                self.assertLessEqual(norm_difference, NORM_TOLERANCE)
                for weight, difference in self.reference.weight_differences(run).items():
                    self.assertLessEqual(difference, WEIGHT_TOLERANCE, weight)
                self.assertEqual(run.weights("final").keys(), self.reference.weights.keys())
                for weight, value in run.weights("final").items():
                    if weight not in transformers.trained(run.job, self.reference.weights):
                        self.assertTrue(torch.equal(value, run.weights("initial")[weight]), weight)
                    if weight.endswith(".bk"):
                        self.assertLessEqual(value.abs().max().item(), KEY_BIAS_MAX, weight)

    def test_sgd_with_momentum_and_linear_decay_agrees_with_pytorch(self):
        run = Run(self.model, ["training.optimizer.sgd.momentum=0.9", "training.optimizer.sgd.weight_decay=0.01",
                               "training.schedule.learning_rate=0.05", "training.schedule.decay=LINEAR",
                               "mesh=dp=2,tp=2"])
        reference = Reference(run)
        self.assertLess(reference.losses[-1], reference.losses[0] - 0.5)
        self.assertLessEqual(reference.loss_difference(run), LOSS_TOLERANCE)
        for weight, difference in reference.weight_differences(run).items():
            self.assertLessEqual(difference, WEIGHT_TOLERANCE, weight)

    def test_bf16_stays_near(self):
        for changes in [[], ["mesh=dp=2,tp=2"]]:
            with self.subTest(changes=changes):
                run = Run(self.model, ["training.precision=BF16", *changes])
                self.assertLessEqual(self.reference.loss_difference(run), BF16_LOSS_TOLERANCE)
                self.assertGreater(self.reference.loss_difference(run), LOSS_TOLERANCE, "this is no bf16")

    def test_f16_stays_near(self):
        # A scale that does not overflow: an update that is left out would be one that PyTorch makes in f32.
        for changes in [[], ["mesh=dp=2,tp=2"]]:
            with self.subTest(changes=changes):
                run = Run(self.model, ["training.precision=F16", "training.loss_scale.initial=64", *changes])
                self.assertLessEqual(self.reference.loss_difference(run), F16_LOSS_TOLERANCE)
                self.assertGreater(self.reference.loss_difference(run), LOSS_TOLERANCE, "this is no f16")

    def test_the_model_learns_and_some_gradients_are_clipped(self):
        clip_norm = self.reference.job["training"]["optimizer"]["clip_norm"]
        self.assertLess(self.reference.losses[-1], self.reference.losses[0] / 2)
        self.assertGreater(self.reference.grad_norms.max(), clip_norm)
        self.assertLess(self.reference.grad_norms.min(), clip_norm)

    def test_slightly_other_training_is_told_apart(self):
        adamw = "training.optimizer.adamw."
        # Adam sees the amount of clipping only if some steps are clipped and some are not.
        for change in [adamw + "weight_decay=0.105", adamw + "beta2=0.951", "training.optimizer.clip_norm=1.5",
                       "training.schedule.warmup_steps=4"]:
            with self.subTest(change=change):
                run = Run(self.model, [change])
                self.assertGreater(max(self.reference.weight_differences(run).values()), WEIGHT_TOLERANCE)


class Gpt(Training, unittest.TestCase):
    model = "gpt"
    heads = ["heads", "head_count"]

    def test_every_optimizer_agrees_with_its_formulas_in_every_layout(self):
        ways = ([], ["mesh=dp=2,tp=2", "training.zero_stage=3", "training.micro_batches=2"],
                ["mesh=dp=3,tp=2", "training.zero_stage=1"], ["mesh=pp=2", "training.micro_batches=4"],
                ["mesh=dp=2,tp=2"])
        for kind, numbers, rate in OPTIMIZERS:
            optimizer = [f"training.optimizer.{kind}.{number}" for number in numbers]
            optimizer.append(f"training.schedule.learning_rate={rate}")
            reference = Reference(Run(self.model, optimizer))
            self.assertLess(reference.losses[-1], reference.losses[0] - 0.1, kind)
            for changes in ways:
                with self.subTest(optimizer=kind, changes=changes):
                    run = Run(self.model, [*optimizer, *changes])
                    self.assertLessEqual(reference.loss_difference(run), FORMULA_LOSS_TOLERANCE[kind])
                    for weight, difference in reference.weight_differences(run).items():
                        self.assertLessEqual(difference, FORMULA_WEIGHT_TOLERANCE[kind], weight)


class Llama(Training, unittest.TestCase):
    model = "llama"
    heads = ["heads", "head_count", "kv_heads", "kv_head_count"]


class Shared(Training, unittest.TestCase):
    model = "shared"
    heads = ["heads", "head_count"]


if __name__ == "__main__":
    unittest.main()
