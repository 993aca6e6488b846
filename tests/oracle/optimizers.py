"""Formulas of the optimisers that this PyTorch does not have, in the type of the weights.

Each takes the numbers of the job under the names of proto/job.proto; a number that is not there has the default that
the reference of the job file states.
"""

import math

import torch


class _Optimizer(torch.optim.Optimizer):
    """An optimiser that updates each weight by itself."""

    def __init__(self, groups, options):
        super().__init__(groups, {"lr": 0.0})
        self.options = options

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                state["t"] = state.get("t", 0) + 1
                self.update(weight, weight.grad, state, group["lr"], group["weight_decay"])

    def moment(self, state, name, new, decay):
        """Returns the mean of `new` with that decay, which begins with zeros."""
        state[name] = decay * state.get(name, torch.zeros_like(new)) + (1 - decay) * new
        return state[name]


class Lion(_Optimizer):
    """Chen and others, 2023: symbolic discovery of optimization algorithms."""

    def update(self, weight, grad, state, lr, decay):
        beta1, beta2 = self.options.get("beta1", 0.9), self.options.get("beta2", 0.99)
        way = beta1 * state.get("m", torch.zeros_like(grad)) + (1 - beta1) * grad
        weight.mul_(1 - lr * decay).sub_(lr * way.sign())
        self.moment(state, "m", grad, beta2)


class Lamb(_Optimizer):
    """You and others, 2020: large batch optimization for deep learning, with the bias of both moments corrected."""

    def update(self, weight, grad, state, lr, decay):
        beta1, beta2 = self.options.get("beta1", 0.9), self.options.get("beta2", 0.999)
        m = self.moment(state, "m", grad, beta1) / (1 - beta1 ** state["t"])
        v = self.moment(state, "v", grad ** 2, beta2) / (1 - beta2 ** state["t"])
        way = m / (v.sqrt() + self.options.get("epsilon", 1e-6)) + decay * weight
        trust = weight.norm() / way.norm()
        weight.sub_(lr * (trust if weight.norm() > 0 and way.norm() > 0 else 1.0) * way)


class Adafactor(_Optimizer):
    """Shazeer and Stern, 2018, in the form of torch.optim.Adafactor of PyTorch 2.5."""

    def update(self, weight, grad, state, lr, decay):
        epsilon1, epsilon2 = self.options.get("epsilon1", 2.0 ** -23), self.options.get("epsilon2", 1e-3)
        t = state["t"]
        keep = 1 - t ** self.options.get("beta2_decay", -0.8)
        if grad.dim() > 1:
            rows = self.moment(state, "rows", (grad ** 2).mean(-1, keepdim=True), keep)
            columns = self.moment(state, "columns", (grad ** 2).mean(-2, keepdim=True), keep)
            moment = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=epsilon1)
        else:
            moment = self.moment(state, "v", grad ** 2, keep)
        way = grad / moment.clamp(min=epsilon1 ** 2).sqrt()
        size = math.sqrt(weight.numel())
        rate = min(lr, 1 / math.sqrt(t)) * max(epsilon2, weight.norm().item() / size)
        too_long = max(1.0, way.norm().item() / (size * self.options.get("clip_threshold", 1.0)))
        weight.mul_(1 - lr * decay).sub_(rate / too_long * way)


class Muon(_Optimizer):
    """Jordan and others, 2024; AdamW for what is no matrix. With `flatten`, a weight of more dimensions is a matrix."""

    def update(self, weight, grad, state, lr, decay):
        if grad.dim() > 2 and self.options.get("flatten", False):
            self.update(weight.view(len(weight), -1), grad.view(len(grad), -1), state, lr, decay)
            return
        if grad.dim() != 2:
            self.adamw(weight, grad, state, lr)
            return
        momentum = self.options.get("momentum", 0.95)
        mean = self.moment(state, "m", grad, momentum)
        way = mean if self.options.get("plain", False) else momentum * mean + (1 - momentum) * grad
        x = way / (way.norm() + self.options.get("epsilon", 1e-7))
        for _ in range(int(self.options.get("iterations", 5))):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        rows, columns = grad.shape
        factor = (0.2 * math.sqrt(max(rows, columns)) if self.options.get("adjust") == "RMS"
                  else math.sqrt(max(1.0, rows / columns)))
        weight.mul_(1 - lr * decay).sub_(lr * factor * x)

    def adamw(self, weight, grad, state, lr):
        options = self.options.get("adamw", {})
        beta1, beta2 = options.get("beta1", 0.9), options.get("beta2", 0.999)
        m = self.moment(state, "m", grad, beta1) / (1 - beta1 ** state["t"])
        v = self.moment(state, "v", grad ** 2, beta2) / (1 - beta2 ** state["t"])
        weight.sub_(lr * m / (v.sqrt() + options.get("epsilon", 1e-8)))


OPTIMIZERS = {"lion": Lion, "lamb": Lamb, "adafactor": Adafactor, "muon": Muon}
