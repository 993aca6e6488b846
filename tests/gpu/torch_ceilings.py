"""Measures what the libraries of PyTorch reach on this GPU: products in the shapes of GPT-2, attention, copies.

Each figure is a line of JSON. The numbers are random: zeros would draw less power and so run faster.
"""

import json
import statistics

import flops
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def fact(name, value, unit):
    print(json.dumps({"fact": name, "value": value, "unit": unit}), flush=True)


def seconds(work, repeats=7, calls=5):
    """Returns the median seconds of one call, over batches of calls, without the host's part."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / calls)
    return statistics.median(times)


def product(name, rows, inner, columns):
    """Measures rows x inner times inner x columns in bf16, with the weight as PyTorch keeps it, and both gradients."""
    x = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(columns, inner, device="cuda", dtype=torch.bfloat16)
    y = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    work = 2 * rows * inner * columns * 1e-12
    fact(f"product.{name}", work / seconds(lambda: x @ weight.t()), "TFLOP/s")
    fact(f"product.{name}.input_gradient", work / seconds(lambda: y @ weight), "TFLOP/s")
    fact(f"product.{name}.weight_gradient", work / seconds(lambda: y.t() @ x), "TFLOP/s")


def attention(name, samples, heads, tokens, width):
    """Measures causal attention, forward and backward. Half of the products' operations count."""
    shape = (samples, heads, tokens, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    work = 4 * samples * heads * tokens * tokens * width * 0.5 * 1e-12
    for library, backend in [("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)]:
        try:
            with sdpa_kernel(backend):
                fact(f"attention.{name}.{library}.forward", work / seconds(
                    lambda: F.scaled_dot_product_attention(q.detach(), k.detach(), v.detach(), is_causal=True)),
                     "TFLOP/s")
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                fact(f"attention.{name}.{library}.backward", 2.5 * work / seconds(
                    lambda: torch.autograd.grad(y, (q, k, v), gradient, retain_graph=True)), "TFLOP/s")
        except RuntimeError as error:
            fact(f"attention.{name}.{library}", str(error).splitlines()[0], "")


def main():
    product("8192", 8192, 8192, 8192)
    for name in ["124M", "355M", "1.5B"]:
        size = flops.GPT2[name]
        rows = size.micro_batch * size.sequence
        product(f"{name}.qkv", rows, size.hidden, 3 * size.hidden)
        product(f"{name}.out", rows, size.hidden, size.hidden)
        product(f"{name}.up", rows, size.hidden, 4 * size.hidden)
        product(f"{name}.down", rows, 4 * size.hidden, size.hidden)
        product(f"{name}.logits", rows, size.hidden, size.vocab)
        attention(name, size.micro_batch, size.heads, size.sequence, size.hidden // size.heads)
    a = torch.randn(1 << 28, device="cuda", dtype=torch.float32)
    b = torch.empty_like(a)
    fact("copy.torch", 2 * a.nbytes / seconds(lambda: b.copy_(a)) * 1e-9, "GB/s")


if __name__ == "__main__":
    main()
