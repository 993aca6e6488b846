"""Translates a model of models.py and trains it by PyTorch, for the fixtures and for the test of the translator."""

import dataclasses
import re

import torch

import weir
from tests.models import models, torch_losses

# The rules of all fixtures. A mesh uses those whose axes it has, and a model those whose dimensions it has.
RULES = {"batch": "dp", "heads": "tp", "ffn": "tp", "up": "tp", "dense_h_to_4h": "tp", "vocab": "tp"}
# Further dimensions that tp splits: heads that no operation shows to be heads, channels, and the rows of tables.
SPLIT = {"linear_attention": ("d4",), "alibi": ("dim_0",), "resnet": ("channels_3", "channels_5"),
         "convnext": ("pwconv1", "pwconv1_2", "pwconv1_3"), "unet": ("groups",),
         "dlrm": ("vocab_2", "vocab_3", "dim_0", "dim_0_2")}


@dataclasses.dataclass
class Translated:
    name: str
    model: torch.nn.Module
    inputs: dict
    graph: object
    job: weir.Job

    def torch_losses(self, steps):
        """Returns PyTorch's losses. The model changes."""
        return torch_losses.train(self.model, self.inputs, steps)


def rules_for(name, text):
    """Returns the rules about dimensions that the graph of a model has."""
    found = set(re.findall(r'dim \{ name: "([^"]+)"', text))
    rules = {**RULES, **{dim: "tp" for dim in SPLIT.get(name, ())}}
    return {dim: axis for dim, axis in rules.items() if dim in found}


def data_of(inputs):
    """Returns synthetic data. A model that reads tokens has them as targets, too, so there is something to learn.

    Targets that the loss ignores in part have a feed of their own.
    """
    if "tokens" not in inputs:
        return "synthetic"
    bound = ("decoder_input_ids",) if "ignore_index" in inputs else ("targets", "decoder_input_ids")
    return {"synthetic": {}, "feed": {name: "tokens" for name in bound if name in inputs}}


def translate(name):
    """Returns the model called `name`, its graph and its job."""
    torch.set_num_threads(1)  # the products are small
    model, inputs = models.make(name)
    graph = weir.from_torch(model, name=name, **inputs)
    optimizer = weir.AdamW(lr=torch_losses.RATE, betas=torch_losses.BETAS, eps=torch_losses.EPSILON,
                           weight_decay=torch_losses.WEIGHT_DECAY)
    job = weir.job(graph, steps=torch_losses.STEPS, rules=rules_for(name, graph.text), data=data_of(inputs),
                   optimizer=optimizer, seed=torch_losses.SEED)
    return Translated(name, model, inputs, graph, job)
