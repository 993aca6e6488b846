"""Operands of operations of PyTorch: numbers, folded tensors and views."""

import torch

from weir.views import Refused, View

HIDDEN = -1e30  # stands for minus infinity in an addend: the sum stays finite, also in bf16, and its exponential is 0


class Folded:
    """A Folded tensor depends on constants alone; PyTorch has computed it."""

    def __init__(self, tensor):
        self.tensor = tensor


def number_of(item):
    """Returns the number that a Python number or a folded tensor of one element is, or None."""
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    if isinstance(item, Folded) and item.tensor.numel() == 1 and item.tensor.dtype != torch.bool:
        return float(item.tensor)
    return None


def shape_of(item):
    return tuple(item.tensor.shape) if isinstance(item, Folded) else item.torch_shape


def rank_of(item):
    return len(shape_of(item)) if isinstance(item, (Folded, View)) else 0


def finite(addend):
    """Returns an addend without infinities: what is below HIDDEN becomes HIDDEN."""
    if not isinstance(addend, Folded) or not addend.tensor.is_floating_point():
        return addend
    if not bool((addend.tensor < -HIDDEN).all()):
        raise Refused("a constant that is infinite or not a number")
    return Folded(addend.tensor.clamp(min=HIDDEN)) if bool((addend.tensor < HIDDEN).any()) else addend
