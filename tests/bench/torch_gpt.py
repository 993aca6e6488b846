"""Trains the zoo's GPT for a few steps in PyTorch, as a user of PyTorch would write it. Prints one line of JSON.

    torch_gpt.py --layers 8 --hidden 256 --heads 4 --vocab 256 --sequence 64 --batch 8 --steps 10 --threads 1

The model uses what PyTorch has: the fused projection of q, k and v, scaled_dot_product_attention and AdamW's fused
implementation where the installed PyTorch has them, clipping over all tensors at once, and autocast for bf16. `--eager`
measures single small operations instead. tools/bench runs this program in its own process and does not import it.
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # PyTorch before version 2 lacks scaled_dot_product_attention.
    tokens = q.shape[-2]
    mask = torch.full((tokens, tokens), float("-inf"), dtype=q.dtype).triu(1)
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask, dim=-1) @ v


class Block(torch.nn.Module):

    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attention_norm = torch.nn.LayerNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.out = torch.nn.Linear(hidden, hidden)
        self.ffn_norm = torch.nn.LayerNorm(hidden)
        self.up = torch.nn.Linear(hidden, ffn)
        self.down = torch.nn.Linear(ffn, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        q, k, v = (y.view(batch, sequence, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.attention_norm(x)).split(hidden, -1))
        attended = causal_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), approximate="tanh"))


class Gpt(torch.nn.Module):

    def __init__(self, args):
        super().__init__()
        self.tokens = torch.nn.Embedding(args.vocab, args.hidden)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(args.sequence, args.hidden))
        self.blocks = torch.nn.ModuleList(Block(args.hidden, args.heads, 4 * args.hidden) for _ in range(args.layers))
        self.final_norm = torch.nn.LayerNorm(args.hidden)
        self.vocab = torch.nn.Linear(args.hidden, args.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.vocab(self.final_norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def adamw(model):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return adamw_of([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}])


def adamw_of(groups):
    options = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **options)
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(groups, **options)


def resident_bytes(field):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))


def train(args):
    torch.manual_seed(1)
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum()  # loads the libraries that load late
    before = resident_bytes("VmRSS")
    model = Gpt(args)
    step_model = torch.compile(model) if args.compile else model
    optimizer = adamw(model)
    tokens = torch.randint(args.vocab, (args.batch, args.sequence))
    targets = torch.randint(args.vocab, (args.batch, args.sequence))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = step_model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(args.warmup):
        step()
    wall, cpu = [], []
    for _ in range(args.steps):
        wall_before, cpu_before = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - wall_before)
        cpu.append(time.process_time() - cpu_before)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"wall": wall, "cpu": cpu, "peak_bytes": peak - before, "version": torch.__version__}


def eager(args):
    """Returns samples of the CPU time in nanoseconds of an operation on 8 x 8 numbers, which is nearly all overhead."""
    a, b, c = torch.ones(8, 8), torch.ones(8, 8), torch.empty(8, 8)
    samples, count = [], 20000
    for _ in range(args.steps):
        before = time.process_time()
        for _ in range(count):
            torch.add(a, b, out=c)
        samples.append((time.process_time() - before) / count * 1e9)
    return {"ns": samples, "version": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "heads", "vocab", "sequence", "batch"):
        parser.add_argument("--" + name, type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(json.dumps(eager(args) if args.eager else train(args)))


if __name__ == "__main__":
    main()
