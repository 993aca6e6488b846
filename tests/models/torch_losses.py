"""Trains a model of models.py by PyTorch, in double precision, on the batches that Weir makes."""

import math

import torch

from tests.models import synthetic_data
from weir import capture
from weir import inputs as weir_inputs

STEPS = 20
SEED = 4
RATE, BETAS, EPSILON, WEIGHT_DECAY = 3e-3, (0.9, 0.99), 1e-8, 0.1
CLASSES = 10
VOCABULARY = 96
# The rows of tables that are no vocabularies, by the input that has their ids.
ROWS = {"user_ids": 40, "item_ids": 24, "kind_ids": 7}


def batch(declared, step, ignore_index=None):
    """Returns the tensors of one step for the declared inputs of a graph."""
    tensors = []
    reads_tokens = any(value.name == "tokens" for value in declared)
    reads_text = any(value.name == "tokens" or value.name.endswith("_ids") for value in declared)
    for value in declared:
        shape = [dim.size for dim in value.dims]
        if value.dtype == "bool":
            tensors.append(torch.tensor(synthetic_data.mask(value.name, SEED, step, shape[0], shape[1])))
            continue
        below = ROWS.get(value.name, VOCABULARY if reads_text else CLASSES) if value.dtype == "i32" else None
        ignored = ignore_index if value.name == "targets" else None
        feed = "tokens" if reads_tokens and below is not None and ignored is None else value.name
        rows = synthetic_data.batch(feed, SEED, step, shape[0], math.prod(shape[1:]), below, ignored)
        tensors.append(torch.tensor(rows, dtype=torch.float64 if below is None else torch.long).reshape(shape))
    return tensors


def train(model, inputs, steps):
    """Returns the losses of `steps` steps of AdamW, in which matrices decay. The model changes.

    `inputs` are the keywords of weir.from_torch.
    """
    loss, ignore_index = inputs.get("loss"), inputs.get("ignore_index")
    declared = weir_inputs.declared_inputs({key: value for key, value in inputs.items()
                                            if key not in ("loss", "ignore_index")})
    model = model.double()
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPSILON)
    names = [value.name for value in declared]
    bind, targets = weir_inputs.bind_inputs(model, names, "targets" in names)
    losses = []
    for step in range(steps):
        tensors = batch(declared, step, ignore_index)
        args, kwargs = bind(tensors)
        result = capture.loss_of(model(*args, **kwargs), None if targets is None else tensors[targets], loss)
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
        losses.append(float(result.detach()))
    return losses
