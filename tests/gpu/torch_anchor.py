"""Trains a GPT-2 in PyTorch on random tokens and prints its rate as a line of JSON: the figure that Weir's has to meet.

    torch_anchor.py --size 124M --mode compile --precision bf16 --steps 8

Modes: `eager`; `compile`, which compiles the whole model; `blocks`, which compiles one block for all layers and the
end of the model, and so takes seconds where `compile` takes minutes.

Precisions: `autocast` keeps f32 weights and casts inside products, as most programs do. `bf16` keeps bf16 weights and
activations, f32 masters of the weights and f32 states of AdamW, as Weir does.
"""

import argparse
import json
import time

import flops
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A block of GPT-2: attention and feed-forward part, each behind a norm and added to the residual stream."""

    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.norm1 = nn.LayerNorm(size.hidden)
        self.project_in = nn.Linear(size.hidden, 3 * size.hidden)
        self.project_out = nn.Linear(size.hidden, size.hidden)
        self.norm2 = nn.LayerNorm(size.hidden)
        self.up = nn.Linear(size.hidden, 4 * size.hidden)
        self.down = nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x):
        samples, tokens, hidden = x.shape
        packed = self.project_in(self.norm1(x)).view(samples, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(mixed.transpose(1, 2).reshape(samples, tokens, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    """The last norm, the logits by the table of tokens, and the mean loss in f32."""

    def __init__(self, table, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.table = table

    def forward(self, x, targets):
        logits = F.linear(self.norm(x), self.table)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Gpt2(nn.Module):

    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(size.vocab, size.hidden))
        self.positions = nn.Parameter(torch.empty(size.sequence, size.hidden))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.head = Head(self.tokens, size.hidden)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = F.embedding(ids, self.tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x, targets)


class Optimizer:
    """AdamW with clipping, on the parameters themselves or on f32 masters of bf16 parameters."""

    def __init__(self, model, device, keep_masters):
        self._parameters = list(model.parameters())
        self._masters = self._parameters
        if keep_masters:
            self._masters = [nn.Parameter(p.detach().float()) for p in self._parameters]
        groups = [{"params": [p for p in self._masters if p.ndim > 1], "weight_decay": 0.1},
                  {"params": [p for p in self._masters if p.ndim <= 1], "weight_decay": 0.0}]
        self._adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")
        self._keep_masters = keep_masters

    def step(self):
        if self._keep_masters:
            for master, parameter in zip(self._masters, self._parameters):
                if master.grad is None:
                    master.grad = torch.empty_like(master)
            torch._foreach_copy_([m.grad for m in self._masters], [p.grad for p in self._parameters])
        nn.utils.clip_grad_norm_(self._masters, 1.0, foreach=True)
        self._adamw.step()
        if self._keep_masters:
            with torch.no_grad():
                torch._foreach_copy_(self._parameters, self._masters)
        for parameter in self._parameters:
            parameter.grad = None


def train(args, size, micro_batch):
    """Returns the seconds of each step, and the losses."""
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device(args.device):
        model = Gpt2(size)
    keep_masters = args.precision == "bf16"
    if keep_masters:
        model.to(torch.bfloat16)
    optimizer = Optimizer(model, args.device, keep_masters)
    if args.mode == "compile":
        model.compile()
    elif args.mode == "blocks":
        for block in model.blocks:
            block.compile()
        model.head.compile()
    pieces = size.batch // micro_batch
    ids = torch.randint(size.vocab, (pieces, micro_batch, size.sequence + 1), device=args.device)

    def step():
        total = torch.zeros((), device=args.device)
        for piece in ids:
            with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "autocast"):
                loss = model(piece[:, :-1], piece[:, 1:])
            (loss / pieces).backward()
            total += loss.detach().float() / pieces
        optimizer.step()
        return total

    def wait():
        if args.device == "cuda":
            torch.cuda.synchronize()

    begin = time.perf_counter()
    losses = [step() for _ in range(args.warmup)]
    wait()
    warm = time.perf_counter() - begin
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        losses.append(step())
        wait()
        seconds.append(time.perf_counter() - begin)
    return warm, sorted(seconds), [loss.item() for loss in losses]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=flops.GPT2, default="124M")
    parser.add_argument("--mode", choices=["eager", "compile", "blocks"], default="eager")
    parser.add_argument("--precision", choices=["autocast", "bf16", "f32"], default="autocast")
    parser.add_argument("--micro-batch", type=int, help="samples per micro-batch; halved while memory lacks")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    size = flops.GPT2[args.size]
    micro_batch = args.micro_batch or size.micro_batch
    while True:
        try:
            warm, seconds, losses = train(args, size, micro_batch)
            break
        except torch.OutOfMemoryError:
            if micro_batch == 1:
                raise
            micro_batch //= 2
        torch.cuda.empty_cache()
    rate = size.tokens / seconds[len(seconds) // 2]
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    print(json.dumps({"tokens_per_second": rate, "mfu": size.utilisation(rate), "step_seconds": seconds,
                      "warmup_seconds": warm, "micro_batch": micro_batch, "batch": size.batch, "memory_bytes": peak,
                      "losses": losses, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
