"""Compares every differentiable op, forward and backward, and the ops that make masks, with PyTorch's op in double
precision.

The program op_gradients runs the cases of ops/testing and some longer cases on the CPU kernels. This test passes the
same operands through PyTorch. Two tensors agree if max |a - b| <= TOLERANCE * max |b|, where b is PyTorch's tensor.
"""

import json
import math
import os
import subprocess
import tempfile
import unittest

import torch
import torch.nn.functional as F

from tests.oracle import safetensors_file

TOLERANCE = 1e-5

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_exact": F.gelu,
    "silu": F.silu,
}

# The functions of one element. A name of PyTorch's stands for itself.
UNARY = {name: getattr(torch, name) for name in (
    "sigmoid", "tanh", "erf", "exp", "expm1", "log", "log1p", "sin", "cos", "sqrt", "rsqrt", "reciprocal", "square",
    "abs", "sign", "floor", "ceil", "round")}
UNARY.update({name: f for name, f in ACTIVATIONS.items() if name != "none"})
UNARY["softplus"] = F.softplus
UNARY["step"] = lambda x: (torch.sign(x) + 1) / 2


def sizes_of(text):
    """Returns the sizes in a text: "batch=5, heads=4/2" gives [5, 4]."""
    return [int(item.split("=")[1].split("/")[0]) for item in text.split(",")]


def axes_of(x, attrs):
    return attrs["axes"] or list(range(x.dim()))


# Each function below takes (attrs, Weir's outputs, *inputs) and returns the differentiable output or outputs. A
# function uses Weir's outputs only if the op draws random numbers.


def matmul(attrs, outputs, x, w, bias=None):
    pre = x @ (w.t() if attrs["transpose_w"] else w)
    if bias is not None:
        pre = pre + bias
    return ACTIVATIONS[attrs["activation"]](pre), pre


def batched_matmul(attrs, outputs, a, b):
    a = a.transpose(-1, -2) if attrs["transpose_a"] else a
    return a @ (b.transpose(-1, -2) if attrs["transpose_b"] else b)


def embedding(attrs, outputs, table, ids):
    inside = (ids >= 0) & (ids < table.shape[0])
    return F.embedding(ids.clamp(0, table.shape[0] - 1), table) * inside[..., None]


def inside(index, size):
    """Returns which indices are in range, and the indices with 0 for the others. Shards give 0 for the others."""
    within = (index >= 0) & (index < size)
    return within, index * within


def take(attrs, outputs, x, ids):
    axis = attrs["axis"]
    within, places = inside(ids.long(), x.shape[axis])
    taken = x.index_select(axis, places.reshape(-1)) * within.reshape((-1,) + (1,) * (x.dim() - axis - 1))
    return taken.reshape(x.shape[:axis] + ids.shape + x.shape[axis + 1:]).to(x.dtype)


def gather(attrs, outputs, x, index):
    within, places = inside(index.long(), x.shape[attrs["axis"]])
    return (x.gather(attrs["axis"], places) * within).to(x.dtype)


def segment_sum(attrs, outputs, x, ids):
    axis, shape = attrs["axis"], sizes_of(attrs["to"])
    within, places = inside(ids.long().reshape(-1), shape[axis])
    slices = x.reshape(x.shape[:axis] + (-1,) + x.shape[axis + ids.dim():])
    slices = slices * within.reshape((-1,) + (1,) * (slices.dim() - axis - 1))
    return torch.zeros(shape, dtype=x.dtype).index_add(axis, places, slices)


def scatter_add(attrs, outputs, x, index):
    shape = sizes_of(attrs["to"])
    within, places = inside(index.long(), shape[attrs["axis"]])
    return torch.zeros(shape, dtype=x.dtype).scatter_add(attrs["axis"], places, x * within)


def top_k(attrs, outputs, x):
    values, indices = x.topk(attrs["k"], attrs["axis"], attrs["largest"])
    return values, indices


def cumsum(attrs, outputs, x):
    axis = attrs["axis"]
    turned = x.flip(axis) if attrs["reverse"] else x
    sums = turned.cumsum(axis) - (turned if attrs["exclusive"] else 0)
    return sums.flip(axis) if attrs["reverse"] else sums


def layer_norm(attrs, outputs, x, gamma, beta=None):
    return F.layer_norm(x, gamma.shape, gamma, beta, attrs["epsilon"])


def rms_norm(attrs, outputs, x, gamma):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + attrs["epsilon"]) * gamma


def attention(attrs, outputs, q, k, v, mask=None):
    group = q.shape[2] // k.shape[2]
    q, k, v = (t.transpose(1, 2) for t in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)))
    scores = q @ k.transpose(-1, -2) * (attrs["scale"] or q.shape[-1] ** -0.5)
    if attrs["causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        if attrs["window"]:
            hidden |= torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-attrs["window"])
        scores = scores.masked_fill(hidden, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    # The probabilities of a query that sees no key are 0.
    blind = (scores == float("-inf")).all(-1, keepdim=True)
    probabilities = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    return (probabilities @ v).transpose(1, 2)


def rotary(attrs, outputs, x, positions=None):
    half = x.shape[-1] // 2
    positions = torch.arange(x.shape[1]) if positions is None else positions
    angle = (positions.to(x.dtype)[..., None]
             * attrs["base"] ** (-torch.arange(half, dtype=x.dtype) / half))
    # The op rotates each pair of elements in the complex plane.
    turn = torch.polar(torch.ones_like(angle), -angle if attrs["inverse"] else angle)[..., None, :]
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], -1)


def softmax_cross_entropy(attrs, outputs, x, targets):
    ignored = attrs["ignore_index"] or [-100]
    return F.cross_entropy(x.movedim(-1, 1), targets, reduction="none", ignore_index=ignored[0],
                           label_smoothing=attrs["label_smoothing"])


def cast(attrs, outputs, x):
    if attrs["to"] == "f32":
        return x.double()
    return x.to({"bool": torch.bool, "i32": torch.int64}[attrs["to"]])


def compared(function):
    return lambda attrs, outputs, a, b=None: function(a, attrs["value"] if b is None else b)


def where(attrs, outputs, condition, a, b=None):
    return torch.where(condition, a, torch.tensor(attrs["value"], dtype=a.dtype) if b is None else b)


def dropout(attrs, outputs, x):
    return x * (outputs[0] != 0) / (1 - attrs["rate"])


def per_dim(attrs, name, rank, fallback):
    """Returns the attribute with one number per spatial dimension."""
    values = attrs[name] or fallback
    return values * (rank - 2) if len(values) == 1 else values


def windows(attrs, x):
    return {"stride": per_dim(attrs, "stride", x.dim(), [1]), "padding": per_dim(attrs, "padding", x.dim(), [0]),
            "dilation": per_dim(attrs, "dilation", x.dim(), [1]), "groups": attrs["groups"]}


def conv(attrs, outputs, x, w, bias=None):
    return (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3](x, w, bias, **windows(attrs, x))


def conv_transpose(attrs, outputs, x, w, bias=None):
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3]
    return function(x, w, bias, output_padding=per_dim(attrs, "output_padding", x.dim(), [0]), **windows(attrs, x))


def max_pool(attrs, outputs, x):
    kernel = per_dim(attrs, "kernel", x.dim(), [])
    return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.dim() - 3](
        x, kernel, per_dim(attrs, "stride", x.dim(), kernel), per_dim(attrs, "padding", x.dim(), [0]),
        per_dim(attrs, "dilation", x.dim(), [1]), ceil_mode=attrs["ceil"])


def average_pool(attrs, outputs, x):
    kernel = per_dim(attrs, "kernel", x.dim(), [])
    return (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.dim() - 3](
        x, kernel, per_dim(attrs, "stride", x.dim(), kernel), per_dim(attrs, "padding", x.dim(), [0]),
        ceil_mode=attrs["ceil"], count_include_pad=attrs["count_padding"])


def along(statistic, attrs):
    """Returns a statistic with dimensions of 1 for the axes that it lacks."""
    for axis in sorted(attrs["axes"]):
        statistic = statistic.unsqueeze(axis)
    return statistic


def variance(attrs, outputs, x, mean):
    n = math.prod(x.shape[axis] for axis in attrs["axes"])
    biased = ((x - along(mean, attrs)) ** 2).mean(attrs["axes"])
    return biased, biased * n / (n - 1)


def normalize(attrs, outputs, x, mean, variance, gamma=None, beta=None):
    y = (x - along(mean, attrs)) / torch.sqrt(along(variance, attrs) + attrs["epsilon"])
    return y if gamma is None else y * along(gamma, attrs) + along(beta, attrs)


OPS = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "max_pool": max_pool,
    "average_pool": average_pool,
    "reduce_variance": variance,
    "moving_average": lambda attrs, outputs, x, average, sample=None: x * 1,
    "normalize": normalize,
    "matmul": matmul,
    "batched_matmul": batched_matmul,
    "embedding": embedding,
    "take": take,
    "segment_sum": segment_sum,
    "gather": gather,
    "scatter_add": scatter_add,
    "top_k": top_k,
    "argmax": lambda attrs, outputs, x: (x if attrs["largest"] else -x).argmax(attrs["axis"]),
    "cumsum": cumsum,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "attention": attention,
    "rotary": rotary,
    "dropout": dropout,
    **{name: lambda attrs, outputs, x, f=f: f(x) for name, f in UNARY.items()},
    "softmax": lambda attrs, outputs, x: torch.softmax(x, -1),
    "softmax_cross_entropy": softmax_cross_entropy,
    **{name: compared(getattr(torch, function)) for name, function in (
        ("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
        ("greater_equal", "ge"))},
    "logical_and": lambda attrs, outputs, a, b: a & b,
    "logical_or": lambda attrs, outputs, a, b: a | b,
    "logical_xor": lambda attrs, outputs, a, b: a ^ b,
    "logical_not": lambda attrs, outputs, a: ~a,
    "where": where,
    "leaky_relu": lambda attrs, outputs, x: F.leaky_relu(x, attrs["slope"]),
    "elu": lambda attrs, outputs, x: F.elu(x, attrs["alpha"]),
    "clamp": lambda attrs, outputs, x: torch.clamp(x, attrs["min"], attrs["max"]),
    "power": lambda attrs, outputs, x: x ** attrs["exponent"],
    "add": lambda attrs, outputs, a, b: a + b,
    "sub": lambda attrs, outputs, a, b: a - b,
    "mul": lambda attrs, outputs, a, b: a * b,
    "div": lambda attrs, outputs, a, b: a / b,
    "maximum": lambda attrs, outputs, a, b: torch.maximum(a, b),
    "minimum": lambda attrs, outputs, a, b: torch.minimum(a, b),
    "scale": lambda attrs, outputs, x: x * attrs["factor"],
    "cast": cast,
    "reshape": lambda attrs, outputs, x: x.reshape(sizes_of(attrs["to"])),
    "transpose": lambda attrs, outputs, x: x.permute(attrs["perm"]),
    "slice": lambda attrs, outputs, x: x.narrow(attrs["axis"], attrs["begin"], attrs["size"]),
    "pad": lambda attrs, outputs, x: F.pad(x.transpose(attrs["axis"], -1), (
        attrs["begin"], attrs["size"] - attrs["begin"] - x.shape[attrs["axis"]])).transpose(attrs["axis"], -1),
    "concat": lambda attrs, outputs, *parts: torch.cat(parts, attrs["axis"]),
    "reduce_sum": lambda attrs, outputs, x: x.sum(axes_of(x, attrs)),
    "reduce_mean": lambda attrs, outputs, x: x.mean(axes_of(x, attrs)),
    "reduce_max": lambda attrs, outputs, x: x.amax(axes_of(x, attrs)),
}


def difference(found, expected):
    """Returns max |found - expected| / max |expected|, or max |found - expected| if all of expected is 0."""
    scale = expected.abs().max().item() if expected.numel() else 0.0
    gap = (found - expected).abs().max().item() if expected.numel() else 0.0
    return gap / scale if scale > 0 else gap


class OpGradients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ops.safetensors")
            subprocess.run(["tests/oracle/op_gradients", path], check=True)
            cls.tensors, notes = safetensors_file.read(path)
        cls.cases = {name: json.loads(note) for name, note in notes.items()}

    def take(self, case, part, count):
        return [self.tensors.get(f"{case}/{part}/{i}") for i in range(count)]

    def check(self, what, found, expected):
        self.assertEqual((found.shape, found.dtype), (expected.shape, expected.dtype), what)
        if not expected.is_floating_point():
            found, expected = found.double(), expected.double()
        self.assertLessEqual(difference(found, expected), TOLERANCE, what)

    def test_every_op_and_its_gradient_agree_with_pytorch(self):
        for name, case in sorted(self.cases.items()):
            with self.subTest(case=name):
                inputs = self.take(name, "input", case["inputs"])
                outputs = self.take(name, "output", case["outputs"])
                output_grads = self.take(name, "output_grad", case["outputs"])
                for value in inputs:
                    value.requires_grad_(value.is_floating_point())
                self.assertIn(case["op"], OPS, "add what PyTorch calls it to OPS")
                expected = OPS[case["op"]](case["attrs"], outputs, *inputs)
                expected = expected if isinstance(expected, tuple) else (expected,)
                for o, result in enumerate(expected):
                    self.check(f"output {o}", outputs[o], result.detach())
                if not expected[0].requires_grad:
                    continue
                loss = sum((result * grad).sum() for result, grad in zip(expected, output_grads) if grad is not None)
                loss.backward()
                for i, grad in enumerate(self.take(name, "input_grad", case["inputs"])):
                    self.assertEqual(grad is None, inputs[i].grad is None, f"gradient of input {i}")
                    if grad is not None:
                        self.check(f"gradient of input {i}", grad, inputs[i].grad)

    def test_every_row_of_the_table_is_used(self):
        self.assertEqual(set(OPS), {case["op"] for case in self.cases.values()})

    def test_the_measure_sees_one_wrong_element(self):
        name = "attention, long"
        right = self.tensors[f"{name}/input_grad/1"]
        wrong = right.clone()
        wrong.view(-1)[7] += 1e-4 * right.abs().max()
        self.assertGreater(difference(wrong, right), TOLERANCE)


if __name__ == "__main__":
    unittest.main()
