"""How comparisons, masks and selections of PyTorch become operations of Weir.

A mask is a View whose value has the element type bool, or a folded tensor of booleans. Selections by folded conditions
are in aten_attention.
"""

import math

import torch

from weir.graph import Parameter
from weir.operands import Folded, finite, number_of, rank_of, shape_of
from weir.views import Refused, View

_NAMES = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_SWAPPED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_NO_INTEGERS = "masks are joined with &, |, ^ and ~, and integers are not"


class MaskOperations:
    """The translations of comparisons and masks, a part of AtenOperations."""

    # ---- comparisons

    def _compare(self, op, a, b):
        """Returns the mask of a relation; each operand is a number, a folded tensor or a view."""
        a_number, b_number = _scalar(a), _scalar(b)
        if b_number is not None and rank_of(b) <= rank_of(a):
            return a.with_value(self._emit(op, [a.value], {"value": b_number}))
        if a_number is not None and rank_of(a) <= rank_of(b):
            return self._compare(_SWAPPED.get(op, op), b, a)
        shape = torch.broadcast_shapes(shape_of(a), shape_of(b))
        if isinstance(a, Folded):
            a = self._aligned(a, b)
        elif isinstance(b, Folded):
            b = self._aligned(b, a)
        if a.value.dtype != b.value.dtype:
            a, b = (x if x.value.dtype == "f32" else x.with_value(self._emit("cast", [x.value], {"to": "f32"}))
                    for x in (a, b))
        return self._joined(op, a, b, shape)

    # ---- masks of masks

    def _connected(self, op, a, b):
        if isinstance(a, Folded):
            a, b = b, a
        if _is_integer(a) or _is_integer(b):
            raise Refused(_NO_INTEGERS)
        shape = torch.broadcast_shapes(shape_of(a), shape_of(b))
        if not isinstance(b, Folded):
            return self._joined(op, a, b, shape)
        constant = b.tensor.bool()
        neutral = constant if op == "logical_and" else ~constant
        if bool(neutral.all()):  # only the shape of the constant counts
            return self._repeated_to(a, shape)
        return self._joined(op, a, self._constant_mask(b, a), shape)

    def _constant_mask(self, folded, beside):
        x = self._aligned(Folded(folded.tensor.float()), beside)
        return x.with_value(self._emit("not_equal", [x.value], {"value": 0.0}))

    def _repeated_to(self, x, shape):
        """Returns a view as Tensor.expand makes it."""
        if x.torch_shape == tuple(shape):
            return x
        if x.groups:
            raise Refused("Weir repeats heads only for attention")
        if len(shape) > len(x.perm):
            x = self._views.reshape(x, (1,) * (len(shape) - len(x.perm)) + x.torch_shape)
        return View(x.value, x.shape, x.perm, tuple(n // dim.size for n, dim in zip(shape, x.dims)))

    def op_bitwise_and(self, node, given):
        return self._connected("logical_and", given["self"], given["other"])

    def op_bitwise_or(self, node, given):
        return self._connected("logical_or", given["self"], given["other"])

    def op_bitwise_xor(self, node, given):
        return self._connected("logical_xor", given["self"], given["other"])

    def op_bitwise_not(self, node, given):
        if _is_integer(given["self"]):
            raise Refused(_NO_INTEGERS)
        return given["self"].with_value(self._emit("logical_not", [given["self"].value]))

    op_logical_and = op___and__ = op_bitwise_and
    op_logical_or = op___or__ = op_bitwise_or
    op_logical_xor = op___xor__ = op_bitwise_xor
    op_logical_not = op_bitwise_not

    # ---- selections

    def _selected_by_data(self, condition, a, b):
        """Returns a where a mask of the data holds, and b elsewhere."""
        if condition.value.dtype != "bool":
            condition = condition.with_value(self._emit("cast", [condition.value], {"to": "bool"}))
        if number_of(a) is not None and number_of(b) is None:
            condition = condition.with_value(self._emit("logical_not", [condition.value]))
            a, b = b, a
        a, b = finite(self._tensor(a)), finite(b)
        number = number_of(b)
        shape = torch.broadcast_shapes(condition.torch_shape, shape_of(a), () if number is not None else shape_of(b))
        rank = len(shape)
        order = tuple(range(rank))
        if isinstance(a, View) and len(a.perm) == rank and not a.groups:
            a = self._views.settle_shape(self._real(a))
            order = a.perm
        operands = [condition, self._real(self._view(a))]
        if number is None:
            operands.append(self._real(self._view(b)))
        if any(x.groups for x in operands):
            raise Refused("Weir repeats heads only for attention")
        values = [self._views.to_order(x, order, rank) for x in operands]
        attrs = {"value": max(number, -3e38)} if number is not None else {}
        value = self._emit("where", values, attrs)
        result = View(value, value.dims, tuple(range(len(value.dims))))
        if len(value.dims) < rank:
            result = self._views.reshape(result, (1,) * (rank - len(value.dims)) + result.torch_shape)
        result = View(result.value, result.shape, order)
        bare = result.torch_shape
        return result if bare == tuple(shape) else View(result.value, result.shape, result.perm,
                                                        tuple(n // k for n, k in zip(shape, bare)))

    @staticmethod
    def _tensor(item):
        return item if isinstance(item, (Folded, View)) else Folded(torch.tensor(float(item)))

    # ---- gathering that only moves dimensions

    def _all_elements(self, x, places):
        """Returns all elements of x in their order, gathered by constant `places` in another shape."""
        if not isinstance(x, View) or len(places) != len(x.perm) or not all(isinstance(p, Folded) for p in places):
            raise Refused(NO_GATHER)
        shape = torch.broadcast_shapes(*(shape_of(p) for p in places))
        flat = torch.zeros(shape, dtype=torch.long)
        for size, place in zip(x.torch_shape, places):
            flat = flat * size + torch.where(place.tensor < 0, place.tensor + size, place.tensor)
        if flat.numel() != math.prod(x.torch_shape) or not bool((flat.flatten() == torch.arange(flat.numel())).all()):
            raise Refused(NO_GATHER)
        return self._views.reshape(x, tuple(shape))


NO_GATHER = ("Weir indexes with one tensor of integers that enters the model (x[ids]), with constant bounds, with "
             "constant rows of a matrix, and with constant places in the last dimensions (x[:, i, j])")


def constant_of(value):
    """Returns the booleans of a constant mask, or None of another mask."""
    node = value.producer
    while node is not None and node.op == "reshape":
        node = node.inputs[0].producer
    if node is None or node.op != "not_equal" or len(node.inputs) != 1 or node.attrs["value"] != 0:
        return None
    parameter = node.inputs[0]
    constant = parameter.constant if isinstance(parameter, Parameter) else None
    return None if constant is None else constant.reshape([dim.size for dim in value.dims]) != 0


def _scalar(item):
    number = number_of(item)
    if number is None and isinstance(item, bool):
        return float(item)
    if number is None and isinstance(item, Folded) and item.tensor.numel() == 1:
        return float(item.tensor)
    return number


def _is_integer(item):
    return item.value.dtype != "bool" if isinstance(item, View) else item.tensor.dtype != torch.bool


def _comparison(op):
    return lambda self, node, given: self._compare(op, given["self"], given["other"])


for _name, _op in _NAMES.items():
    setattr(MaskOperations, f"op_{_name}", _comparison(_op))
