"""How attention and constant masks of PyTorch become operations of Weir.

Attention is the function scaled_dot_product_attention, or two products with a softmax between them. A mask is a tensor
that depends on constants alone, so what the mask hides is known here: everything, nothing, or some places.
"""

import torch

from weir.aten_masks import constant_of
from weir.dims import sizes
from weir.operands import Folded, number_of, rank_of
from weir.views import Refused, View, permuted, transposed

_DROPOUT_WARNING = ("attention with dropout keeps all its probabilities in memory; with an attention dropout of 0, the "
                    "operation attention does not")
_HIDES_FROM = -1e9  # a score of this size has the probability 0


class AttentionOperations:
    """The translations of attention and of constant masks, a part of AtenOperations."""

    # ---- constant masks

    def op_where(self, node, given):
        return self._selected(given["condition"], given["self"], given["other"])

    def op_masked_fill(self, node, given):
        return self._selected(given["mask"], given["value"], given["self"])

    def op_tril(self, node, given):
        seen = torch.ones(given["self"].torch_shape[-2:], dtype=torch.bool)
        return self._selected(Folded(seen.tril(given["diagonal"])), given["self"], 0.0)

    def op_triu(self, node, given):
        seen = torch.ones(given["self"].torch_shape[-2:], dtype=torch.bool)
        return self._selected(Folded(seen.triu(given["diagonal"])), given["self"], 0.0)

    def _selected(self, condition, a, b):
        """Returns a where a constant condition holds, and b elsewhere."""
        if not isinstance(condition, Folded):
            return self._selected_by_data(condition, a, b)
        seen = condition.tensor.bool()
        if isinstance(a, View) and isinstance(b, View):
            return self._binary("add", self._binary("mul", a, Folded(seen.float())),
                                self._binary("mul", b, Folded((~seen).float())))
        x, fill, kept = (a, b, seen) if isinstance(a, View) else (b, a, ~seen)
        number = number_of(fill)
        values = torch.tensor(number) if number is not None else fill.tensor.float()
        # Zero times an infinity is no number, so the places of x are set to zero in `values`, not multiplied.
        values = torch.where(kept, torch.zeros(()), values)
        if bool((values[~kept.expand(values.shape)] == -torch.inf).all()):
            return self._binary("add", x, Folded(values))
        x = self._binary("mul", x, Folded(kept.float()))
        return self._binary("add", x, Folded(values)) if bool((values != 0).any()) else x

    # ---- attention

    def op_scaled_dot_product_attention(self, node, given):
        query, key, value = (self._view(given[name]) for name in ("query", "key", "value"))
        if len(query.perm) not in (3, 4):
            raise Refused("Weir's attention takes [batch, heads, sequence, head_dim]")
        if not given.get("enable_gqa") and query.torch_shape[:-2] != key.torch_shape[:-2]:
            raise Refused("the numbers of heads differ; set enable_gqa=True")
        scale = query.torch_shape[-1]**-0.5 if given.get("scale") is None else float(given["scale"])
        mask = given.get("attn_mask")
        if given["is_causal"]:
            mask = Folded(torch.ones(query.torch_shape[-2], key.torch_shape[-2], dtype=torch.bool).tril())
        mask = _seen_of_addends(mask)
        attrs = self._mask_attributes(mask)
        seen = None
        if attrs is None and isinstance(mask, View) and mask.value.dtype == "bool":
            attrs, seen = self._masked(mask)
        dropout = float(given["dropout_p"])
        if dropout != 0 and _DROPOUT_WARNING not in self.warnings:
            self.warnings.append(_DROPOUT_WARNING)
        if dropout == 0 and attrs is not None and value.torch_shape[-1] == query.torch_shape[-1]:
            return self._with_heads([query, key, value], attrs, scale, seen)
        return self._spelled_out(node, query, key, value, mask, scale, dropout)

    def _masked(self, mask):
        """Returns (attributes of `attention`, what is left of a mask of the data): a part that is constant and causal
        becomes attributes.
        """
        node = mask.value.producer
        if node is not None and node.op == "logical_and" and mask.is_straight and mask.has_shape:
            for data, constant in (node.inputs, node.inputs[::-1]):
                seen = constant_of(constant)
                attrs = None if seen is None else _attributes_of(seen)
                if attrs is not None and len(data.dims) == len(mask.shape):
                    return attrs, View.of(data)
        return {"causal": False}, mask

    def _mask_operand(self, mask, has_heads):
        """Returns a mask [batch, heads, queries, keys] with sizes of 1 where it repeats."""
        bare = View(mask.value, mask.shape, mask.perm)
        shape = bare.torch_shape
        if not has_heads:
            shape = (1,) * (3 - len(shape)) + shape
            shape = shape[:1] + (1,) + shape[1:]
        shape = (1,) * (4 - len(shape)) + shape
        return self._views.settle(self._views.reshape(bare, shape))

    def _with_heads(self, operands, attrs, scale, mask=None):
        """Returns the attention of q, k and v, which are [batch, heads, sequence, head_dim], or have no heads."""
        has_heads = len(operands[0].perm) == 4
        if not has_heads:
            operands = [self._views.reshape(x, x.torch_shape[:1] + (1,) + x.torch_shape[1:]) for x in operands]
        usual = operands[0].torch_shape[3]**-0.5
        if abs(scale / usual - 1) > 1e-12:
            attrs = {**attrs, "scale": scale}
        inputs = [self._heads(x) for x in operands]
        if mask is not None:
            inputs.append(self._mask_operand(mask, has_heads))
        attended = self._emit("attention", inputs, attrs)
        result = permuted(View.of(attended), (0, 2, 1, 3))
        return result if has_heads else self._without_dim(result, 1)

    def _spelled_out(self, node, query, key, value, mask, scale, dropout):
        """Returns attention as two products and a softmax, for what the operation `attention` does not have."""
        if query.torch_shape[:-2] != key.torch_shape[:-2]:  # enable_gqa
            count = query.torch_shape[1] // key.torch_shape[1]
            key, value = (View(x.value, x.shape, x.perm, (), (1, count)) for x in (key, value))
        scores = self._with_number("mul", self._batched_product(query, transposed(key)), scale)
        if isinstance(mask, Folded):
            seen = mask.tensor if mask.tensor.dtype == torch.bool else mask.tensor > -torch.inf
            if not bool(seen.any(dim=-1).all()):
                raise Refused("an attention mask that hides everything from a query")
        if mask is not None and (mask.tensor.dtype == torch.bool if isinstance(mask, Folded)
                                 else mask.value.dtype == "bool"):
            scores = self._selected(mask, scores, -torch.inf)
        elif mask is not None:
            scores = self._binary("add", scores, mask)
        probabilities = self.op_softmax(node, {"self": scores, "dim": -1})
        if dropout != 0:
            probabilities = self._unary("dropout", probabilities, {"rate": dropout})
        return self._batched_product(probabilities, value)

    def _heads(self, x):
        """Returns q, k or v in Weir's order, without the repetition of shared heads."""
        if x.groups:
            if x.groups[0] != 1:
                raise Refused("Weir repeats heads only for attention")
            x = View(x.value, x.shape, x.perm)
        return self._views.settle(permuted(x, (0, 2, 1, 3)))

    @staticmethod
    def _mask_attributes(mask):
        """Returns the attributes of `attention` for a mask, or None if the operation has no such mask."""
        if mask is None:
            return {"causal": False}
        if not isinstance(mask, Folded):
            return None
        return _attributes_of(_seen_places(mask.tensor))

    def _attention_by_hand(self, probabilities, value):
        """Returns softmax(scale q k^T + mask) v as attention, if `probabilities` are that, or else None."""
        rank = rank_of(probabilities)
        if rank not in (3, 4) or rank_of(value) != rank or not isinstance(value, View):
            return None
        if value.groups and (rank != 4 or value.groups[0] != 1) or value.is_repeated and not value.groups:
            return None
        softmax = probabilities.value.producer
        if softmax is None or softmax.op != "softmax" or not probabilities.is_straight or probabilities.is_repeated:
            return None
        scores, mask = _without_data_mask(softmax.inputs[0])
        scores, seen = _without_masks(scores)
        if sizes(scores.dims) != sizes(softmax.inputs[0].dims):
            return None  # a mask repeats the scores
        attrs = _attributes_of(seen)
        scale = 1.0
        if scores.producer is not None and scores.producer.op == "scale":
            scale, scores = scores.producer.attrs["factor"], scores.producer.inputs[0]
        product = scores.producer
        if attrs is None or product is None or product.op != "batched_matmul":
            return None
        query, key = (self._copies.get(item, View.of(item)) for item in product.inputs)
        query = transposed(query) if product.attrs.get("transpose_a") else query
        key = key if product.attrs.get("transpose_b") else transposed(key)
        if query.torch_shape[-1] != value.torch_shape[-1] or key.torch_shape != value.torch_shape:
            return None
        if query.groups or key.groups != value.groups:
            return None
        return self._with_heads([_through_transpose(x) for x in (query, key, value)], attrs, scale, mask)


def _seen_places(mask):
    """Returns where a constant mask of booleans or of addends hides nothing, or None if it changes what is seen."""
    if mask.dtype == torch.bool:
        return mask
    seen = mask == 0
    return seen if bool((seen | (mask <= _HIDES_FROM)).all()) else None


def _attributes_of(seen):
    """Returns the attributes of `attention` for the places [..., queries, keys] that are seen, or None."""
    if seen is None:
        return None
    if bool(seen.all()):
        return {"causal": False}
    queries, keys = seen.shape[-2:] if seen.dim() > 1 else (1, seen.shape[-1])
    if queries != keys:
        return None
    causal = torch.ones(queries, keys, dtype=torch.bool).tril()
    if bool((seen == causal).all()):
        return {"causal": True}
    window = int(seen.reshape(-1, queries, keys)[0, -1].sum())
    if window > 0 and bool((seen == causal.triu(1 - window)).all()):
        return {"causal": True, "window": window}
    return None


def _orders(value, op):
    """Returns the operands of the commutative operation that made a value in both orders; none if it was another."""
    node = value.producer
    return (node.inputs, node.inputs[::-1]) if node is not None and node.op == op else ()


def _seen_of_addends(mask):
    """Returns the mask of what is seen, if the addends of a mask are 0 there and hide the rest, or else the mask."""
    node = mask.value.producer if isinstance(mask, View) else None
    if node is None or node.op != "where" or len(node.inputs) != 2 or node.attrs["value"] > _HIDES_FROM:
        return mask
    shown = getattr(node.inputs[1], "constant", None)
    condition = node.inputs[0]
    if shown is None or bool((shown != 0).any()) or sizes(condition.dims) != sizes(mask.value.dims):
        return mask
    return mask.with_value(condition)


def _without_data_mask(scores):
    """Returns (scores before a mask of the data hides some of them, the view of the mask or None)."""
    node = scores.producer
    if node is None or node.op != "where" or len(node.inputs) != 2 or node.attrs["value"] > _HIDES_FROM:
        return scores, None
    return node.inputs[1], View.of(node.inputs[0])


def _without_masks(scores):
    """Returns (scores before all constant masks, the places that all of them show, or None if they do more)."""
    seen = torch.ones((), dtype=torch.bool)
    while seen is not None:
        inner, mask = _without_mask(scores)
        if mask is None:
            return scores, seen
        shown = _seen_places(mask)
        scores, seen = inner, None if shown is None else seen & shown
    return scores, None


def _without_mask(scores):
    """Returns (scores before a mask, the addends of the mask), or (scores, None) if no constant mask made them."""
    for x, mask in _orders(scores, "add"):
        addends = getattr(mask, "constant", None)
        if addends is None or addends.dim() < 2:
            continue
        for inner, kept in _orders(x, "mul"):
            factors = getattr(kept, "constant", None)
            if factors is not None and factors.shape == addends.shape and bool((factors == (addends == 0)).all()):
                return inner, addends
        return x, addends
    return scores, None


def _through_transpose(x):
    """Returns the same elements as a view of what a transposition read."""
    node = x.value.producer
    if node is None or node.op != "transpose" or not x.has_shape or x.is_repeated:
        return x
    source = node.inputs[0]
    return View(source, source.dims, tuple(node.attrs["perm"][d] for d in x.perm))
