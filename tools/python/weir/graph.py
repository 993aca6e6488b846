"""A model as a list of operations of Weir, before the model is cut into functions.

Every operation has one result; that of top_k is its second one, the indices. Dimensions are in the order of Weir's
operations. Weir does not have two of the operations: "add_scalar", of which `rewrite.lower_scalars` replaces what is
left, and "unbiased_variance", which is printed as the second result of reduce_variance.
"""

import dataclasses
import math
import typing

from weir.dims import Dim, sizes

BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
REDUCE = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_variance", "unbiased_variance")
# `to` holds the dimensions of the results of these.
RESIZE = ("conv", "conv_transpose", "max_pool", "average_pool", "pad", "scatter_add", "segment_sum", "one_hot")


@dataclasses.dataclass(eq=False)
class Value:
    """A Value is a tensor: an input, a parameter, or the result of `producer`."""
    dims: tuple
    dtype: str = "f32"
    name: str = ""
    producer: typing.Optional["Node"] = None


@dataclasses.dataclass(frozen=True)
class Cut:
    """A Cut says which part of a tensor of the state_dict a parameter of Weir is.

    The stored tensor is seen under `shape`, and elements `begin` to `begin + size - 1` along `axis` are taken. The
    parameter holds these elements in row-major order.
    """
    source: str
    shape: tuple
    axis: int = 0
    begin: int = 0
    size: int = -1  # -1: all

    def is_whole(self):
        return self.size < 0


@dataclasses.dataclass(eq=False)
class Parameter(Value):
    """A Parameter is a tensor of the state_dict or a part of one (`cut`), or a folded constant (`constant`)."""
    cut: typing.Optional[Cut] = None
    constant: typing.Any = None  # a tensor of PyTorch in the shape of `dims`, or None
    decay: bool = False
    frozen: bool = False


@dataclasses.dataclass(eq=False)
class Node:
    """A Node is one operation. `module` is the path of the module of PyTorch that ran the operation."""
    op: str
    inputs: list
    attrs: dict
    output: Value
    module: str = ""
    line: str = ""


@dataclasses.dataclass(eq=False)
class Graph:
    inputs: list = dataclasses.field(default_factory=list)
    parameters: list = dataclasses.field(default_factory=list)
    nodes: list = dataclasses.field(default_factory=list)
    loss: typing.Optional[Value] = None

    def users(self):
        """Returns {value: nodes that read the value, each as often as it reads the value}."""
        users = {}
        for node in self.nodes:
            for value in node.inputs:
                users.setdefault(value, []).append(node)
        return users

    def replace(self, replacements):
        """Puts values in the places of others, through chains of replacements, in all nodes and as the loss."""

        def final(value):
            while value in replacements:
                value = replacements[value]
            return value

        for node in self.nodes:
            node.inputs = [final(value) for value in node.inputs]
        self.loss = final(self.loss)


def broadcast(a, b):
    """Returns the dimensions of an operation on two tensors whose last dimensions are aligned."""
    rank = max(len(a), len(b))
    result = []
    for d in range(rank):
        of_a = a[d - rank + len(a)] if d >= rank - len(a) else None
        of_b = b[d - rank + len(b)] if d >= rank - len(b) else None
        if of_a is None or (of_b is not None and of_a.size == 1 and of_b.size != 1):
            result.append(of_b)
        elif of_b is None or of_b.size == 1 or of_a.name or not of_b.name:
            result.append(of_a)
        else:
            result.append(of_b)
    return tuple(result)


def infer(op, inputs, attrs):
    """Returns (dimensions, element type) of the result of an operation."""
    dims = inputs[0].dims
    if op in BINARY:
        return broadcast(dims, inputs[1].dims), "f32"
    if op in COMPARE or op in LOGICAL:
        return broadcast(dims, inputs[1].dims) if len(inputs) > 1 else dims, "bool"
    if op == "where":
        for other in inputs[1:]:
            dims = broadcast(dims, other.dims)
        return dims, "f32"
    if op == "cast":
        return dims, attrs["to"]
    if op == "matmul":
        return dims[:-1] + (inputs[1].dims[0 if attrs.get("transpose_w") else 1],), "f32"
    if op == "batched_matmul":
        rows, columns = -1 if attrs.get("transpose_a") else -2, -2 if attrs.get("transpose_b") else -1
        leading = tuple(b if b.name and not a.name else a for a, b in zip(dims[:-2], inputs[1].dims[:-2]))
        return leading + (dims[rows], inputs[1].dims[columns]), "f32"
    if op == "embedding":
        return inputs[1].dims + dims[1:], "f32"
    if op == "take":
        axis = attrs["axis"]
        return dims[:axis] + inputs[1].dims + dims[axis + 1:], inputs[0].dtype
    if op == "gather":
        axis = attrs["axis"]
        return dims[:axis] + (inputs[1].dims[axis],) + dims[axis + 1:], inputs[0].dtype
    if op == "top_k":  # the indices, its second result
        axis = attrs["axis"]
        return dims[:axis] + (Dim(attrs["k"]),) + dims[axis + 1:], "i32"
    if op == "argmax":
        return dims[:attrs["axis"]] + dims[attrs["axis"] + 1:], "i32"
    if op in RESIZE:
        return tuple(attrs["to"]), "f32"
    if op == "reshape":
        if math.prod(sizes(attrs["to"])) != math.prod(sizes(dims)):
            raise ValueError(f"reshape of {sizes(dims)} to {sizes(attrs['to'])}")
        return tuple(attrs["to"]), inputs[0].dtype
    if op == "transpose":
        return tuple(dims[d] for d in attrs["perm"]), inputs[0].dtype
    if op == "slice":
        axis, size = attrs["axis"], attrs["size"]
        dim = dims[axis] if dims[axis].size == size else Dim(size)
        return dims[:axis] + (dim,) + dims[axis + 1:], inputs[0].dtype
    if op == "concat":
        axis = attrs["axis"]
        size = sum(value.dims[axis].size for value in inputs)
        return dims[:axis] + (Dim(size),) + dims[axis + 1:], inputs[0].dtype
    if op in REDUCE:
        axes = attrs.get("axes") or list(range(len(dims)))
        return tuple(dim for d, dim in enumerate(dims) if d not in axes), "f32"
    if op == "softmax_cross_entropy":
        return dims[:-1], "f32"
    return dims, "f32"  # attention, norms, functions of one element


def make_node(op, inputs, attrs, module="", line=""):
    """Returns a node with its result."""
    dims, dtype = infer(op, inputs, attrs)
    node = Node(op, list(inputs), dict(attrs), Value(dims, dtype), module, line)
    node.output.producer = node
    return node
