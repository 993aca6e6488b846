"""Operations of PyTorch that read and write at indices, and those that choose elements by their value."""

import torch

from weir.dims import Dim, sizes
from weir.operands import Folded, shape_of
from weir.views import Refused, View

_COMPUTED = "an index is an integer that enters the model, or that topk or argmax has found"


class IndexingOperations:
    """The translations of this subject. The class is a part of AtenOperations."""

    def _indices(self, item):
        """Returns the value of indices in PyTorch's order."""
        if isinstance(item, Folded):
            raise Refused("Weir has constant indices only for slices, and for rows of a matrix")
        if item.value.dtype != "i32":
            raise Refused(_COMPUTED)
        return self._views.settle(item)

    def _straight(self, item):
        """Returns the value of a tensor of any type in PyTorch's order."""
        return self._views.settle(self._view(item))

    def _cut_to(self, x, shape, axis):
        """Returns a view with the first elements of x along each dimension but `axis`, as many as `shape` has."""
        for d, size in enumerate(shape):
            if d != axis and x.torch_shape[d] != size:
                x = self._views.slice(x, d, 0, size)
        return x

    def op_index_select(self, node, given):
        x = self._view(given["self"])
        axis = given["dim"] % len(x.perm)
        ids = self._indices(given["index"])
        x = self._views.settle_shape(self._views.plain(x))
        value = self._emit("take", [x.value, ids], {"axis": x.perm[axis]})
        return View(value, value.dims, x.perm)

    def op_gather(self, node, given):
        x = self._view(given["self"])
        axis = given["dim"] % len(x.perm)
        index = self._indices(given["index"])
        x = self._cut_to(x, sizes(index.dims), axis)
        return View.of(self._emit("gather", [self._views.settle(x), index], {"axis": axis}))

    def op_take_along_dim(self, node, given):
        if given.get("dim") is None:
            raise Refused("Weir has take_along_dim along one dimension; flatten the operands")
        return self.op_gather(node, {**given, "index": given["indices"]})

    def op_scatter_add(self, node, given):
        base, source = given["self"], self._real(self._view(given["src"]))
        axis = given["dim"] % len(source.perm)
        index = self._indices(given["index"])
        shape = shape_of(base)
        if any(n != m for d, (n, m) in enumerate(zip(shape, sizes(index.dims))) if d != axis):
            raise Refused("Weir has scatter_add with an index of the result's shape, except along the dimension")
        source = self._views.settle(self._cut_to(source, sizes(index.dims), -1))
        dims = self._view(base).dims if isinstance(base, View) else tuple(Dim(size) for size in shape)
        sums = View.of(self._emit("scatter_add", [source, index], {"axis": axis, "to": dims}))
        if isinstance(base, Folded) and not bool(base.tensor.any()):
            return sums
        return self._binary("add", base, sums)

    def op_index_add(self, node, given):
        base, source = given["self"], self._real(self._view(given["source"]))
        axis = given["dim"] % len(source.perm)
        dims = self._view(base).dims if isinstance(base, View) else tuple(Dim(size) for size in shape_of(base))
        source = self._views.settle(self._times(source, given.get("alpha", 1)))
        sums = View.of(self._emit("segment_sum", [source, self._indices(given["index"])], {"axis": axis, "to": dims}))
        if isinstance(base, Folded) and not bool(base.tensor.any()):
            return sums
        return self._binary("add", base, sums)

    def op_one_hot(self, node, given):
        classes = tuple(node.meta["val"].shape)[-1]
        if not isinstance(classes, int):
            raise Refused("write the number of classes: one_hot(x, num_classes=10)")
        ids = self._indices(given["self"])
        return View.of(self._emit("one_hot", [ids], {"to": ids.dims + (Dim(classes),)}))

    # ---- elements that are chosen by their value

    def _best(self, x, axis, count, largest):
        """Returns the indices of the first elements by value, and a view of the operand, settled, that they count in.

        top_k has the values as its first result; a node has one result here, so the values are gathered.
        """
        x = self._views.settle_shape(self._views.plain(self._real(self._view(x))))
        place = x.perm[axis]
        attrs = {"axis": place, "k": count} | ({} if largest else {"largest": False})
        return self._emit("top_k", [x.value], attrs), x, place

    def op_topk(self, node, given):
        axis = given["dim"] % len(given["self"].perm)
        indices, x, place = self._best(given["self"], axis, given["k"], given["largest"])
        values = self._emit("gather", [x.value, indices], {"axis": place})
        return [View(value, value.dims, x.perm) for value in (values, indices)]

    def op_sort(self, node, given):
        size = given["self"].torch_shape[given["dim"] % len(given["self"].perm)]
        return self.op_topk(node, {**given, "k": size, "largest": bool(given.get("descending"))})

    def op_argsort(self, node, given):
        return self.op_sort(node, given)[1]

    def _place_of_best(self, given, largest):
        x = self._views.settle_shape(self._views.plain(self._real(given["self"])))
        if given.get("dim") is None:
            raise Refused("Weir has argmax along one dimension; flatten the operand, and name dim=0")
        axis = given["dim"] % len(x.perm)
        place = x.perm[axis]
        value = self._emit("argmax", [x.value], {"axis": place} | ({} if largest else {"largest": False}))
        perm = tuple(p - (p > place) for d, p in enumerate(x.perm) if d != axis)
        result = View(value, value.dims, perm)
        if given.get("keepdim"):
            shape = tuple(1 if d == axis else n for d, n in enumerate(x.torch_shape))
            return self._views.reshape(result, shape)
        return result

    def op_argmax(self, node, given):
        return self._place_of_best(given, True)

    def op_argmin(self, node, given):
        return self._place_of_best(given, False)

    def op_cumsum(self, node, given):
        x = self._views.settle_shape(self._views.plain(self._real(given["self"])))
        axis = given["dim"] % len(x.perm)
        return x.with_value(self._emit("cumsum", [x.value], {"axis": x.perm[axis]}))

    # ---- bags of rows

    def op_embedding_bag(self, node, given):
        """Bags of one length: PyTorch writes them as one list of ids and offsets that are equally far apart."""
        ids, offsets = given["indices"], given["offsets"]
        if not isinstance(offsets, Folded):
            raise Refused("Weir has bags of one length: pass ids [batch, length] to EmbeddingBag, without offsets")
        count = shape_of(ids)[0]
        starts = offsets.tensor.tolist()[:-1 if given.get("include_last_offset") else None]
        length = count // max(1, len(starts))
        if starts != list(range(0, count, max(1, length))):
            raise Refused("Weir has bags of one length")
        if given.get("mode") not in (0, 1):
            raise Refused("Weir has bags with the sum or the mean of their rows")
        if isinstance(ids, Folded) or ids.value.dtype != "i32":
            raise Refused(_COMPUTED)
        ids = self._views.reshape(ids, (len(starts), length))
        rows = self.op_embedding(node, {"weight": given["weight"], "indices": ids, "padding_idx":
                                        given.get("padding_idx", -1),
                                        "scale_grad_by_freq": given.get("scale_grad_by_freq")})
        weights = given.get("per_sample_weights")
        if weights is not None:
            rows = self._binary("mul", rows, self._views.reshape(weights, (len(starts), length, 1)))
        op = "reduce_mean" if given["mode"] == 1 else "reduce_sum"
        bags = self._reduce(op, node, {"self": rows, "dim": [1]})
        nothing = Folded(torch.empty(0, dtype=torch.long))
        return [bags, nothing, nothing, nothing]

    op__embedding_bag = op_embedding_bag

    # ---- pairs of constant places

    def _constant_places(self, x, places):
        """Returns x[:, i, j] for lists of constants i, j: a product with a constant that has a 1 per place.

        `places` begins with as many None as x has whole dimensions before the indexed ones, which are the last.
        """
        leading = 0
        while leading < len(places) and places[leading] is None:
            leading += 1
        indexed = places[leading:]
        if not leading or len(places) != len(x.perm) or not all(isinstance(place, Folded) for place in indexed):
            return None
        lists = torch.broadcast_tensors(*(place.tensor for place in indexed))
        if lists[0].dim() != 1 or lists[0].dtype == torch.bool:
            return None
        shape = x.torch_shape
        flat = torch.zeros(lists[0].shape, dtype=torch.long)
        count = 1
        for size, place in zip(shape[leading:], lists):
            flat = flat * size + torch.where(place < 0, place + size, place)
            count *= size
        chosen = torch.nn.functional.one_hot(flat, count)
        flattened = self._views.reshape(x, shape[:leading] + (count,))
        return self._product(flattened, Folded(chosen), None, True)
