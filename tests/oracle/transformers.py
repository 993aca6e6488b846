"""Computes the zoo's GPT and Llama and their training again, in PyTorch, from the parameter names of a run.

The weights are a plain dictionary under Weir's names: "layers.2.wq" is a weight of a block, and "token_table" is a
weight of the model itself.
"""

import math

import torch
import torch.nn.functional as F

from tests.oracle import optimizers


class Block:
    """A Block holds the parameters of one block under the names that its function gives them."""

    def __init__(self, weights, prefix):
        self._weights = weights
        self._prefix = prefix

    def __getattr__(self, name):
        return self._weights[self._prefix + name]

    def mlp(self, x):
        p = self if self._prefix + "w_up" in self._weights else Block(self._weights, self._prefix + "mlp.")
        return F.gelu(x @ p.w_up + p.b_up, approximate="tanh") @ p.w_down + p.b_down


def _num_layers(weights):
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))


def _causal_attention(q, k, v):
    """Computes attention for q [b, s, h, d] and for k and v [b, s, g, d]. Query head i attends to head i // (h / g)."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    length = q.shape[1]
    scores = scores + torch.full((length, length), float("-inf"), dtype=scores.dtype).triu(1)
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)


def _layer_norm(x, gamma, beta):
    return F.layer_norm(x, gamma.shape, gamma, beta, 1e-5)


def _rms_norm(x, gamma):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gamma


def _rotate(x):
    """Rotates the pair (i, i + d/2) of position p by the angle p * 10000^(-2i/d)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angles = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), rates)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def _gpt_block(p, x, head_dim):
    norm = _layer_norm(x, p.attention_norm_gamma, p.attention_norm_beta)
    q, k, v = (y.unflatten(-1, (-1, head_dim))
               for y in (norm @ p.wq + p.bq, norm @ p.wk + p.bk, norm @ p.wv + p.bv))
    x = x + _causal_attention(q, k, v).flatten(-2) @ p.wo + p.bo
    return x + p.mlp(_layer_norm(x, p.ffn_norm_gamma, p.ffn_norm_beta))


def gpt_logits(weights, tokens, head_dim):
    x = weights["token_table"][tokens] + weights["position_table"]
    for layer in range(_num_layers(weights)):
        x = _gpt_block(Block(weights, f"layers.{layer}."), x, head_dim)
    return _layer_norm(x, weights["final_norm_gamma"], weights["final_norm_beta"]) @ weights["w_vocab"]


def shared_logits(weights, tokens, head_dim):
    """Computes a GPT that adds the positions in every block and whose table of tokens makes the logits, too."""
    x = weights["token_table"][tokens] + weights["position_table"]
    for layer in range(_num_layers(weights)):
        x = _gpt_block(Block(weights, f"layers.{layer}."), x + weights["position_table"], head_dim)
    return _layer_norm(x, weights["head.norm_gamma"], weights["head.norm_beta"]) @ weights["token_table"].T


def llama_logits(weights, tokens, head_dim):
    x = weights["token_table"][tokens]
    for layer in range(_num_layers(weights)):
        p = Block(weights, f"layers.{layer}.")
        norm = _rms_norm(x, p.attention_norm_gamma)
        q, k, v = (y.unflatten(-1, (-1, head_dim)) for y in (norm @ p.wq, norm @ p.wk, norm @ p.wv))
        x = x + _causal_attention(_rotate(q), _rotate(k), v).flatten(-2) @ p.wo
        norm = _rms_norm(x, p.ffn_norm_gamma)
        x = x + (F.silu(norm @ p.w_gate) * (norm @ p.w_up)) @ p.w_down
    return _rms_norm(x, weights["final_norm_gamma"]) @ weights["w_vocab"]


LOGITS = {"gpt": gpt_logits, "llama": llama_logits, "shared": shared_logits}


def _learning_rate(schedule, steps, step):
    """Returns the rate of a step: linear warm-up, then half a cosine or a line to the least rate at the last step."""
    rate, least, warmup = schedule["learning_rate"], schedule["min_learning_rate"], int(schedule["warmup_steps"])
    if step < warmup:
        return rate * (step + 1) / warmup
    end = int(schedule["decay_steps"]) or steps
    progress = (step - warmup) / (end - warmup)
    share = {"COSINE": (1 + math.cos(math.pi * progress)) / 2, "LINEAR": 1 - progress}[schedule["decay"]]
    return least + (rate - least) * share


def _named(job, field):
    """Returns the names, inside their functions, of the parameters whose `field` is true."""
    return {parameter["name"] for function in job["graph"]["function"] for parameter in function["parameter"]
            if parameter[field]}


def trained(job, weights):
    """Returns the weights that are not frozen, by name."""
    frozen = _named(job, "frozen")
    return {name: weight for name, weight in weights.items() if name.split(".")[-1] not in frozen}


def _optimizer(job, weights):
    """Returns the optimiser that the job describes, without a learning rate yet."""
    (kind, options), = ((k, v) for k, v in job["training"]["optimizer"].items() if k != "clip_norm")
    decays = _named(job, "decay")
    groups = [
        {"params": [w for name, w in weights.items() if name.split(".")[-1] in decays],
         "weight_decay": options["weight_decay"]},
        {"params": [w for name, w in weights.items() if name.split(".")[-1] not in decays], "weight_decay": 0.0},
    ]
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=options["momentum"])
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, betas=(options["beta1"], options["beta2"]), eps=options["epsilon"])
    return optimizers.OPTIMIZERS[kind](groups, options)


def train(job, weights, batches):
    """Trains `weights` in place as the job says, and returns (losses, gradient norms).

    Each step uses one batch of (tokens, targets).
    """
    training = job["training"]
    head_dim = next(int(dim["size"]) for dim in job["graph"]["dim"] if dim["name"] == "head_dim")
    logits_of = LOGITS[job["name"]]
    learned = trained(job, weights)
    for weight in learned.values():
        weight.requires_grad_()
    optimizer = _optimizer(job, learned)
    losses, norms = [], []
    for step, (tokens, targets) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(training["schedule"], int(training["steps"]), step)
        optimizer.zero_grad()
        loss = F.cross_entropy(logits_of(weights, tokens, head_dim).flatten(0, 1), targets.flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(learned.values(), training["optimizer"]["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    for weight in weights.values():
        weight.requires_grad_(False)
    return losses, norms
