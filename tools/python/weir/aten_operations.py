"""How each operation of PyTorch becomes operations of Weir, for operations that are more than a name.

A method `op_NAME` takes the node of aten.NAME and its arguments by name, and returns a view, or a list of views.
"""

import math

import torch

from weir.aten_attention import AttentionOperations
from weir.aten_images import ImageOperations
from weir.aten_indexing import IndexingOperations
from weir.aten_masks import NO_GATHER, MaskOperations
from weir.aten_products import ProductOperations
from weir.dims import Dim, sizes
from weir.exported_nodes import module_path
from weir.operands import Folded, finite, number_of, rank_of, shape_of
from weir.views import Refused, View, inverse, permuted, transposed

HINTS = {
    "index": NO_GATHER,
    **{name: "Weir does not look for numbers that are not finite" for name in ("isnan", "isinf")},
    "scatter": "Weir has scatter_add only", "index_put": "Weir has scatter_add only",
    "instance_norm": "Weir has no instance normalisation yet; nn.GroupNorm with as many groups as channels is the same",
    "adaptive_max_pool2d": "Weir has adaptive average pooling only",
    **{"upsample_" + name: "Weir enlarges images by repeating elements only (mode=\"nearest\")"
       for name in ("bilinear2d", "bicubic2d", "linear1d", "trilinear3d")},
    **{name: "Weir has no recurrent layers yet; attention, and products over the whole sequence, are possible"
       for name in ("gru", "lstm", "rnn_tanh", "rnn_relu")},
    "detach": "Weir cannot stop a gradient inside the model; requires_grad=False keeps parameters as they are",
}


class AtenOperations(ProductOperations, AttentionOperations, ImageOperations, MaskOperations, IndexingOperations):
    """The translations. The subclass Translator adds nodes and makes views and constants."""

    # ---- elements of two tensors

    def _binary(self, op, a, b):
        """Returns op(a, b) with broadcasting; each operand is a number, a folded tensor or a view."""
        if op in ("add", "sub"):
            a, b = finite(a), finite(b)
        a_number, b_number = number_of(a), number_of(b)
        if b_number is not None and rank_of(b) <= rank_of(a):
            return self._with_number(op, self._real(a), b_number)
        if a_number is not None and rank_of(a) <= rank_of(b):
            return self._number_first(op, a_number, self._real(b))
        shape = torch.broadcast_shapes(shape_of(a), shape_of(b))
        if isinstance(a, Folded):
            a = self._aligned(a, b)
        elif isinstance(b, Folded):
            b = self._aligned(b, a)
        return self._joined(op, self._real(a), self._real(b), shape)

    def _joined(self, op, a, b, shape):
        """Returns op(a, b) of two views of one element type, repeated to `shape`. A view of a constant may be smaller
        than the constant, so the shape is that of the operands before.
        """
        if (a.torch_shape == b.torch_shape == tuple(shape) and a.perm == b.perm
                and not a.is_repeated and not b.is_repeated
                and sizes(a.shape) == sizes(b.shape) and sizes(a.value.dims) == sizes(b.value.dims)):
            value = self._emit(op, [a.value, b.value])
            return View(value, tuple(_named(x, y) for x, y in zip(a.shape, b.shape)), a.perm)
        if a.groups or b.groups:
            raise Refused("Weir repeats heads only for attention")
        main = a if (len(a.perm), _count(a)) >= (len(b.perm), _count(b)) else b
        other = b if main is a else a
        only_last = all(size == 1 for size in other.torch_shape[:-1])
        if not (only_last and main.keeps_last()):
            main = self._views.settle_shape(main)
        if only_last and main.keeps_last():
            beside = self._views.settle(self._views.reshape(_unrepeated(other), (_count(other),)))
        else:
            beside = self._views.to_order(other, main.perm, len(main.perm))
        value = self._emit(op, [main.value, beside] if main is not b else [beside, main.value])
        if main.has_shape:
            result = View(value, value.dims, main.perm)
        else:
            result = View(value, main.shape[:-1] + (value.dims[-1],), main.perm)
        bare = sizes(result.dims)
        if bare != tuple(shape):
            result = View(result.value, result.shape, result.perm, tuple(n // k for n, k in zip(shape, bare)))
        return result

    def _aligned(self, folded, beside):
        """Returns a view of a folded tensor whose value needs no node to stand beside the value of `beside`."""
        tensor, rank = folded.tensor, len(beside.perm)
        if tensor.dim() > rank:
            return View.of(self.constant(tensor))
        tensor = tensor.reshape((1,) * (rank - tensor.dim()) + tuple(tensor.shape))
        for axis in range(rank - 2):  # masks often repeat along the batch
            first = tensor.narrow(axis, 0, 1)
            tensor = first if bool((tensor == first).all()) else tensor
        tensor = tensor.permute(inverse(beside.perm))
        while tensor.dim() > 1 and tensor.shape[0] == 1:
            tensor = tensor[0]
        value = self.constant(tensor)
        return View(value, (Dim(1),) * (rank - len(value.dims)) + value.dims, beside.perm)

    def _with_number(self, op, x, number):
        if op in ("add", "sub"):
            number = number if op == "add" else -number
            return x if number == 0 else x.with_value(self._emit("add_scalar", [x.value], {"value": number}))
        if op in ("mul", "div"):
            if op == "div" and number == 0:
                raise Refused("a division by zero")
            factor = number if op == "mul" else 1.0 / number
            return x if factor == 1 else x.with_value(self._emit("scale", [x.value], {"factor": factor}))
        return x.with_value(self._emit("clamp", [x.value], {"min" if op == "maximum" else "max": number}))

    def _number_first(self, op, number, x):
        if op == "sub":
            return self._with_number("add", self._with_number("mul", x, -1.0), number)
        if op == "div":
            return self._with_number("mul", self._unary("reciprocal", x), number)
        return self._with_number(op, x, number)

    def _times(self, item, factor):
        """Returns a number, a folded tensor or a view times a number."""
        if factor == 1:
            return item
        if isinstance(item, Folded):
            return Folded(item.tensor * factor)
        return self._with_number("mul", self._real(item), float(factor)) if isinstance(item, View) else item * factor

    def op_add(self, node, given):
        return self._binary("add", given["self"], self._times(given["other"], given.get("alpha", 1)))

    def op_sub(self, node, given):
        return self._binary("sub", given["self"], self._times(given["other"], given.get("alpha", 1)))

    def op_rsub(self, node, given):
        return self.op_sub(node, {**given, "self": given["other"], "other": given["self"]})

    def op_mul(self, node, given):
        return self._binary("mul", given["self"], given["other"])

    def op_div(self, node, given):
        if given.get("rounding_mode") is not None:
            raise Refused("Weir divides without rounding")
        return self._binary("div", given["self"], given["other"])

    def op_maximum(self, node, given):
        return self._binary("maximum", given["self"], given["other"])

    def op_minimum(self, node, given):
        return self._binary("minimum", given["self"], given["other"])

    def op_neg(self, node, given):
        return self._with_number("mul", self._real(given["self"]), -1.0)

    def op_pow(self, node, given):
        exponent = number_of(given["exponent"])
        if exponent is None or not isinstance(given["self"], View):
            raise Refused("Weir has powers with constant exponents only")
        x = given["self"]
        by_name = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
        if exponent == 1:
            return x
        if exponent in by_name:
            return self._unary(by_name[exponent], x)
        return self._unary("power", x, {"exponent": exponent})

    # ---- functions of one element with attributes

    def op_gelu(self, node, given):
        return self._unary("gelu" if given["approximate"] == "tanh" else "gelu_exact", given["self"])

    def op_softplus(self, node, given):
        if given["beta"] != 1:
            raise Refused("Weir has softplus with beta=1 only")
        return self._unary("softplus", given["self"])

    def op_leaky_relu(self, node, given):
        return self._unary("leaky_relu", given["self"], {"slope": float(given["negative_slope"])})

    def op_elu(self, node, given):
        if given["scale"] != 1 or given["input_scale"] != 1:
            raise Refused("Weir has elu without scales only")
        return self._unary("elu", given["self"], {"alpha": float(given["alpha"])})

    def op_clamp(self, node, given):
        bounds = {name: number_of(given[name]) for name in ("min", "max") if given.get(name) is not None}
        if None in bounds.values():
            raise Refused("Weir has clamp with constant bounds only")
        return self._unary("clamp", given["self"], bounds)

    def op_clamp_min(self, node, given):
        return self.op_clamp(node, given)

    op_clamp_max = op_clamp_min

    def op_hardtanh(self, node, given):
        return self._unary("clamp", given["self"], {"min": float(given["min_val"]), "max": float(given["max_val"])})

    def op_relu6(self, node, given):
        return self._unary("clamp", given["self"], {"min": 0.0, "max": 6.0})

    def op_hardsigmoid(self, node, given):
        shifted = self._with_number("add", self._real(given["self"]), 3.0)
        return self._with_number("mul", self._unary("clamp", shifted, {"min": 0.0, "max": 6.0}), 1 / 6)

    def op_hardswish(self, node, given):
        return self._binary("mul", given["self"], self.op_hardsigmoid(node, given))

    def op_mish(self, node, given):
        return self._binary("mul", given["self"], self._unary("tanh", self._unary("softplus", given["self"])))

    def op_log_sigmoid(self, node, given):
        negative = self._with_number("mul", self._real(given["self"]), -1.0)
        return self._with_number("mul", self._unary("softplus", negative), -1.0)

    def op_glu(self, node, given):
        x = given["self"]
        axis = given["dim"] % len(x.perm)
        half = x.torch_shape[axis] // 2
        gate = self._unary("sigmoid", self._views.slice(x, axis, half, half))
        return self._binary("mul", self._views.slice(x, axis, 0, half), gate)

    def op_dropout(self, node, given):
        rate = float(given["p"])
        if not given["train"] or rate == 0:
            return given["input"]
        return self._unary("dropout", self._views.plain(given["input"]), {"rate": rate})

    # ---- types

    def _cast(self, node, given):
        x = given["self"]
        to = node.meta["val"].dtype
        if x.value.dtype == "f32" and to.is_floating_point:
            if torch.finfo(to).bits < torch.finfo(self._model_dtype).bits:
                raise Refused("the precision of a job is training.precision; leave casts to shorter types out of the "
                              "model")
            return x
        if to == torch.bool:
            return x if x.value.dtype == "bool" else x.with_value(self._emit("cast", [x.value], {"to": "bool"}))
        if to.is_floating_point:
            return x.with_value(self._emit("cast", [x.value], {"to": "f32"}))
        if x.value.dtype == "i32":
            return x
        if x.value.dtype == "bool":
            return x.with_value(self._emit("cast", [x.value], {"to": "i32"}))
        raise Refused("real numbers cannot become integers, because integers are indices")

    op_to = op__to_copy = op_type_as = _cast

    # ---- moving dimensions

    def _reshaped(self, node, given):
        return self._views.reshape(given["self"], tuple(node.meta["val"].shape))

    op_unsqueeze = op_squeeze = op_flatten = _reshaped

    def _viewed(self, node, given):
        # More dimensions than before are heads and their width, even if there is one head.
        result = self._reshaped(node, given)
        split = result.is_straight and not result.is_repeated and len(result.shape) > len(result.value.dims)
        return self._views.settle_shape(result) if split else result

    op_view = op_reshape = op_unflatten = op__unsafe_view = op_view_as = op_reshape_as = _viewed

    def op_permute(self, node, given):
        return permuted(given["self"], [d % len(given["dims"]) for d in given["dims"]])

    def op_transpose(self, node, given):
        rank = len(given["self"].perm)
        order = list(range(rank))
        a, b = given["dim0"] % rank, given["dim1"] % rank
        order[a], order[b] = b, a
        return permuted(given["self"], order)

    op_swapaxes = op_transpose

    def op_t(self, node, given):
        return permuted(given["self"], list(range(len(given["self"].perm)))[::-1])

    op_numpy_T = op_t

    def op_mT(self, node, given):
        return transposed(given["self"])

    def op_movedim(self, node, given):
        probe = torch.empty(given["self"].torch_shape, device="meta")
        labels = torch.empty([2 + i for i in range(probe.dim())], device="meta")
        moved = torch.movedim(labels, given["source"], given["destination"])
        return permuted(given["self"], [size - 2 for size in moved.shape])

    def op_expand(self, node, given):
        x = given["self"]
        target = tuple(node.meta["val"].shape)
        if x.torch_shape == target:
            return x
        if x.groups:
            raise Refused("Weir repeats heads only for attention")
        if len(target) > len(x.perm):
            x = self._views.reshape(x, (1,) * (len(target) - len(x.perm)) + x.torch_shape)
        return View(x.value, x.shape, x.perm, tuple(n // k for n, k in zip(target, sizes(x.dims))))

    op_expand_as = op_expand

    def op_broadcast_tensors(self, node, given):
        shape = torch.broadcast_shapes(*(shape_of(item) for item in given["tensors"]))
        if any(shape_of(item) != tuple(shape) for item in given["tensors"]):
            raise Refused("write the operands with equal shapes, or with add, sub, mul or div, which broadcast")
        return list(given["tensors"])

    def op_repeat_interleave(self, node, given):
        x, count = given["self"], given["repeats"]
        if not isinstance(count, int) or given["dim"] is None or x.is_repeated:
            raise Refused("Weir repeats heads only for attention")
        return View(x.value, x.shape, x.perm, (), (given["dim"] % len(x.perm), count))

    def op_slice(self, node, given):
        x, axis = given["self"], given["dim"] % len(given["self"].perm)
        if given.get("step", 1) != 1:
            return self._each_of_step(x, axis, given)
        length = x.torch_shape[axis]
        begin, end, _ = slice(given.get("start"), given.get("end")).indices(length)
        if end <= begin:
            return Folded(torch.empty(x.torch_shape[:axis] + (0,) + x.torch_shape[axis + 1:]))
        return self._views.slice(x, axis, begin, end - begin)

    def _each_of_step(self, x, axis, given):
        """Returns every `step`-th element along an axis: a slice of the dimension that a reshape makes of the step."""
        step, size = given["step"], x.torch_shape[axis]
        begin, end, _ = slice(given["start"], given["end"], step).indices(size)
        count = len(range(begin, end, step))
        first = min(begin, size - count * step)
        if count == 0 or first < 0:
            raise Refused("a slice with a step that does not divide the stretch it is taken from")
        x = self._views.slice(x, axis, first, count * step)
        x = self._views.reshape(x, x.torch_shape[:axis] + (count, step) + x.torch_shape[axis + 1:])
        return self._without_dim(self._views.slice(x, axis + 1, begin - first, 1), axis + 1)

    def op_narrow(self, node, given):
        x, axis = given["self"], given["dim"] % len(given["self"].perm)
        return self._views.slice(x, axis, given["start"] % x.torch_shape[axis], given["length"])

    def op_select(self, node, given):
        x, axis = given["self"], given["dim"] % len(given["self"].perm)
        taken = self._views.slice(x, axis, given["index"] % x.torch_shape[axis], 1)
        return self._without_dim(taken, axis)

    def _without_dim(self, x, axis):
        return self._views.reshape(x, x.torch_shape[:axis] + x.torch_shape[axis + 1:])

    def _parts(self, node, given, lengths):
        x, axis, begin, parts = given["self"], given["dim"] % len(given["self"].perm), 0, []
        for length in lengths:
            parts.append(self._views.slice(x, axis, begin, length))
            begin += length
        return parts

    def _parts_as_exported(self, node, given):
        axis = given["dim"] % len(given["self"].perm)
        return self._parts(node, given, [part.shape[axis] for part in node.meta["val"]])

    op_split = op_split_with_sizes = op_chunk = _parts_as_exported

    def op_unbind(self, node, given):
        axis = given["dim"] % len(given["self"].perm)
        parts = self._parts(node, given, [1] * given["self"].torch_shape[axis])
        return [self._without_dim(part, axis) for part in parts]

    def op_cat(self, node, given):
        axis = given["dim"]
        items = [self._view(item) for item in given["tensors"] if 0 not in shape_of(item)]
        whole = [item for item in items if not item.is_repeated]
        if not whole:
            raise Refused("Weir has no operation that repeats elements; only add, sub, mul, div, maximum and minimum "
                          "broadcast their operands")
        axis %= len(whole[0].perm)
        if len(items) == 1:
            return items[0]
        first = self._views.settle_shape(whole[0])
        place = first.perm[axis]
        values = []
        for item in items:
            if item is whole[0]:
                values.append(first.value)
            elif item.is_repeated:
                values.append(self._repeated_beside(item, first, axis))
            else:
                values.append(self._views.settle(permuted(item, inverse(first.perm))))
        value = self._emit("concat", values, {"axis": place})
        return View(value, value.dims, first.perm)

    def _repeated_beside(self, item, first, axis):
        """Returns a repeated tensor in full, for a concat with `first`: 0 times a part of `first`, plus the tensor."""
        size = item.torch_shape[axis]
        if item.groups or size > first.torch_shape[axis]:
            raise Refused("Weir has no operation that repeats elements; only add, sub, mul, div, maximum and minimum "
                          "broadcast their operands")
        part = self._views.slice(first, axis, 0, size)
        zeros = self._emit("scale", [part.value], {"factor": 0.0})
        return self._emit("add", [zeros, self._views.to_order(item, first.perm, len(first.perm))])

    def op_stack(self, node, given):
        axis = given["dim"] % len(node.meta["val"].shape)
        items = [self._view(item) for item in given["tensors"]]
        items = [self._views.reshape(item, item.torch_shape[:axis] + (1,) + item.torch_shape[axis:]) for item in items]
        return self.op_cat(node, {"tensors": items, "dim": axis})

    # ---- sums

    def _reduce(self, op, node, given):
        x = self._views.settle_shape(self._views.plain(self._real(given["self"])))
        rank = len(x.perm)
        axes = given.get("dim")
        axes = list(range(rank)) if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
        axes = sorted(axis % rank for axis in axes)
        places = sorted(x.perm[axis] for axis in axes)
        value = self._emit(op, [x.value], {"axes": places} if len(places) < rank else {})
        kept = [place for place in range(rank) if place not in places]
        perm = tuple(kept.index(x.perm[i]) for i in range(rank) if i not in axes)
        result = View(value, value.dims, perm)
        if given.get("keepdim"):
            shape = tuple(1 if i in axes else n for i, n in enumerate(sizes(x.dims)))
            if result.is_straight:
                return self._views.reshape(result, shape)
            return View(value, tuple(Dim(1) if p in places else dim for p, dim in enumerate(x.shape)), x.perm)
        return result

    def op_mean(self, node, given):
        return self._reduce("reduce_mean", node, given)

    def op_sum(self, node, given):
        return self._reduce("reduce_sum", node, given)

    def op_amax(self, node, given):
        return self._reduce("reduce_max", node, given)

    def op_logsumexp(self, node, given):
        # The largest element is taken out first, so that no exponential overflows.
        largest = self._reduce("reduce_max", node, {**given, "keepdim": True})
        powers = self._unary("exp", self._binary("sub", given["self"], largest))
        sums = self._reduce("reduce_sum", node, {**given, "self": powers})
        return self._binary("add", self._unary("log", sums), self._reduce("reduce_max", node, given))

    def op_linalg_vector_norm(self, node, given):
        if given["ord"] != 2:
            raise Refused("Weir has the Euclidean norm only")
        squares = self._reduce("reduce_sum", node, {**given, "self": self._unary("square", given["self"])})
        return self._unary("sqrt", squares)

    def op_var(self, node, given):
        x = self._real(given["self"])
        mean = self._reduce("reduce_mean", node, {**given, "keepdim": True})
        squares = self._unary("square", self._binary("sub", x, mean))
        variance = self._reduce("reduce_mean", node, {**given, "self": squares})
        count = _count(x) // max(1, _count(variance))
        correction = given.get("correction", 1 if given.get("unbiased", True) else 0)
        correction = 1 if correction is None else correction
        return self._with_number("mul", variance, count / (count - correction))

    def op_std(self, node, given):
        return self._unary("sqrt", self.op_var(node, given))

    # ---- tables, norms, softmax

    def op_embedding(self, node, given):
        if given.get("scale_grad_by_freq"):
            raise Refused("Weir has embeddings without scale_grad_by_freq")
        table, ids = self._view(given["weight"]), given["indices"]
        padding = given.get("padding_idx", -1)
        if isinstance(ids, Folded):
            return self._constant_rows(table, ids.tensor)
        if padding is not None and padding >= 0:
            self.warnings.append(f"{module_path(node) or 'an embedding'} has padding_idx={padding}: PyTorch never "
                                 f"trains this row through the embedding, and Weir does. Results differ if the data "
                                 f"holds {padding}")
        if ids.value.dtype == "f32":
            raise Refused("the rows of a table must be integers that enter the model")
        ids = self._views.plain(ids)
        value = self._emit("embedding", [self._views.settle(table), ids.value])
        return View(value, ids.shape + (value.dims[-1],), ids.perm + (len(ids.perm),))

    def op_index(self, node, given):
        x, indices = given["self"], given["indices"]
        if len(indices) == 1 and isinstance(indices[0], Folded) and rank_of(x) == 2:
            return self._constant_rows(x, indices[0].tensor)
        if len(indices) == 1 and isinstance(indices[0], View) and indices[0].value.dtype == "i32":
            return self._rows_at(x, indices[0])
        if isinstance(x, View) and indices and indices[0] is None:
            chosen = self._constant_places(self._real(x), indices)
            if chosen is not None:
                return chosen
        return self._all_elements(x, indices)

    def _rows_at(self, x, ids):
        """Returns x[ids] for ids of any shape."""
        x = self._view(x)
        value = self._emit("take", [self._views.settle(x), self._views.settle(ids)], {"axis": 0})
        return View.of(value)

    def _constant_rows(self, table, ids):
        """Returns constant rows of a table: a stretch of rows, or one row, repeated along the leading dimensions."""
        shape = tuple(ids.shape)
        rows = ids.reshape(-1).tolist()
        table = self._views.plain(table)
        if rows and all(row == rows[0] for row in rows):
            row = self._views.slice(table, 0, rows[0], 1)
            single = self._views.reshape(row, (1,) * len(shape) + row.torch_shape[1:])
            return View(single.value, single.shape, single.perm, shape + (1,))
        length = shape[-1] if shape else 0
        stretch = rows[:length]
        if rows == stretch * (len(rows) // max(1, length)) and stretch == list(range(stretch[0], stretch[0] + length)):
            part = self._views.slice(table, 0, stretch[0], length)
            single = self._views.reshape(part, (1,) * (len(shape) - 1) + part.torch_shape)
            return View(single.value, single.shape, single.perm, shape[:-1] + (1, 1))
        # Rows in any order are a product with a constant that has a 1 per row.
        one_hot = torch.nn.functional.one_hot(ids.reshape(-1), table.torch_shape[0])
        result = self._product(transposed(table), Folded(one_hot), None, True)
        return self._views.reshape(transposed(result), shape + table.torch_shape[1:])

    def _gamma(self, given):
        """Returns the factor of a norm; a norm without a factor gets ones."""
        if given.get("weight") is not None:
            return self._value(given["weight"])
        size = given["normalized_shape"][0]
        return self.make_constant([1.0] * size, (size,))

    def op_layer_norm(self, node, given):
        if len(given["normalized_shape"]) != 1:
            raise Refused("Weir normalises over the last dimension only")
        x = self._views.settle_last(self._real(given["input"]))
        gamma = self._gamma(given)
        inputs = [x.value, gamma] + ([self._value(given["bias"])] if given.get("bias") is not None else [])
        return x.with_value(self._emit("layer_norm", inputs, {"epsilon": float(given["eps"])}))

    def op_rms_norm(self, node, given):
        if len(given["normalized_shape"]) != 1:
            raise Refused("Weir normalises over the last dimension only")
        x = self._views.settle_last(self._real(given["input"]))
        gamma = self._gamma(given)
        epsilon = given.get("eps")
        epsilon = torch.finfo(self._model_dtype).eps if epsilon is None else float(epsilon)
        return x.with_value(self._emit("rms_norm", [x.value, gamma], {"epsilon": epsilon}))

    def op_softmax(self, node, given):
        x = self._real(given["self"])
        rank = len(x.perm)
        axis = given["dim"] % rank
        order = [d for d in range(rank) if d != axis] + [axis]
        x = self._views.settle_last(permuted(x, order))
        return permuted(x.with_value(self._emit("softmax", [x.value])), inverse(order))

    op__softmax = op_softmax

    def op_log_softmax(self, node, given):
        # The loss of the result needs no logarithm: op_nll_loss reads the input of the softmax.
        return self._unary("log", self.op_softmax(node, given))

    op__log_softmax = op_log_softmax

    # ---- losses

    def op_cross_entropy_loss(self, node, given):
        if given.get("weight") is not None:
            raise Refused("Weir has cross entropy without class weights")
        logits, targets = self._real(given["self"]), given["target"]
        if not isinstance(targets, View) or targets.value.dtype == "f32":
            raise Refused("targets of cross entropy are integers that enter the model; with constant targets, such as "
                          "torch.arange of a contrastive loss, write torch.logsumexp(logits, -1) less the logits of "
                          "the targets, which are the products of the pairs")
        rank = len(logits.perm)
        if rank > 2:
            logits = permuted(logits, [0, *range(2, rank), 1])
        logits = self._views.settle_last(logits)
        targets = self._views.plain(targets)
        if not (logits.perm[:-1] == targets.perm and sizes(logits.shape[:-1]) == sizes(targets.shape)
                and sizes(logits.value.dims[:-1]) == sizes(targets.value.dims)):
            logits, targets = View.of(self._views.settle(logits)), View.of(self._views.settle(targets))
        ignored = int(given["ignore_index"])
        if ignored == -100:  # PyTorch's default, which says nothing of the data
            ignored = self._ignore_index
        elif self._ignore_index not in (None, ignored):
            raise Refused(f"a loss that ignores {ignored}, while from_torch has ignore_index={self._ignore_index}")
        self.ignored.add(ignored)
        attrs = {} if ignored is None else {"ignore_index": [ignored]}
        if given.get("label_smoothing"):
            attrs["label_smoothing"] = float(given["label_smoothing"])
        losses = View(self._emit("softmax_cross_entropy", [logits.value, targets.value], attrs), targets.shape,
                      targets.perm)
        if ignored is None or given["reduction"] != 1:
            return self._reduced_loss(losses, given["reduction"])
        return View.of(self._mean_of_counted(losses.value, targets.value, ignored))

    def _mean_of_counted(self, losses, targets, ignored):
        """Returns the sum of the losses divided by the number of targets of the whole step that are not ignored."""
        counts = self._emit("cast", [self._emit("not_equal", [targets], {"value": float(ignored)})], {"to": "f32"})
        of_step = self._emit("step_mean", [self._emit("reduce_sum", [counts])])
        return self._emit("div", [self._emit("reduce_sum", [losses]), of_step])

    def op_nll_loss(self, node, given):
        log = given["self"].value.producer if isinstance(given["self"], View) else None
        softmax = log.inputs[0].producer if log is not None and log.op == "log" else None
        if softmax is None or softmax.op != "softmax":
            raise Refused("Weir has nll_loss of log_softmax only")
        return self.op_cross_entropy_loss(node, {**given, "self": given["self"].with_value(softmax.inputs[0])})

    op_nll_loss_nd = op_nll_loss

    def op_kl_div(self, node, given):
        target = given["target"]
        logarithm = target if given.get("log_target") else self._logarithm(target)
        if given.get("log_target"):
            target = Folded(target.tensor.exp()) if isinstance(target, Folded) else self._unary("exp", target)
        losses = self._binary("mul", target, self._binary("sub", logarithm, given["self"]))
        return self._reduced_loss(losses, given["reduction"])

    def _logarithm(self, x):
        """Returns the logarithm of probabilities above 0."""
        return Folded(x.tensor.log()) if isinstance(x, Folded) else self._unary("log", x)

    def op_l1_loss(self, node, given):
        return self._reduced_loss(self._unary("abs", self._binary("sub", given["self"], given["target"])),
                                  given["reduction"])

    def op_binary_cross_entropy_with_logits(self, node, given):
        if given.get("weight") is not None or given.get("pos_weight") is not None:
            raise Refused("Weir has binary cross entropy without weights")
        likely = self._binary("mul", given["self"], given["target"])
        losses = self._binary("sub", self._unary("softplus", given["self"]), likely)
        return self._reduced_loss(losses, given["reduction"])

    def op_mse_loss(self, node, given):
        difference = self._binary("sub", given["self"], given["target"])
        return self._reduced_loss(self._unary("square", difference), given["reduction"])

    def _reduced_loss(self, losses, reduction):
        if reduction == 0:
            return losses
        return View.of(self._emit("reduce_mean" if reduction == 1 else "reduce_sum", [losses.value]))


def _count(view):
    return math.prod(sizes(view.dims))


def _named(a, b):
    return a if a.name or not b.name else b


def _unrepeated(view):
    return View(view.value, view.shape, view.perm)
