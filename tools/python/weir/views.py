"""Views: what the translator knows of a tensor of PyTorch.

PyTorch moves dimensions all the time, and Weir's operations want them where they were. A View therefore keeps a
reshape and a permutation pending. Both disappear when PyTorch undoes them, and become nodes only where an operation
needs the elements in their new order.
"""

import dataclasses

from weir import dims as dims_
from weir.dims import sizes
from weir.graph import Value


class Refused(Exception):
    """A Refused error says why one operation has no translation, with a hint for the user."""


@dataclasses.dataclass(frozen=True)
class View:
    """A View is `value`, reshaped to `shape` and then permuted: dimension i of PyTorch is shape[perm[i]].

    `repeats[i]`, for dimension i of PyTorch, is 1, or the number of times that a dimension of size 1 repeats
    (Tensor.expand). `groups` is (dimension of PyTorch, count) if each element along the dimension stands `count` times
    in a row, as repeated heads of keys do.
    """
    value: Value
    shape: tuple
    perm: tuple
    repeats: tuple = ()
    groups: tuple = ()

    @staticmethod
    def of(value):
        return View(value, value.dims, tuple(range(len(value.dims))))

    @property
    def dims(self):
        """The dimensions in PyTorch's order, without repetition."""
        return tuple(self.shape[d] for d in self.perm)

    @property
    def torch_shape(self):
        """The sizes that PyTorch sees."""
        shape = list(sizes(self.dims))
        for d, count in enumerate(self.repeats):
            shape[d] *= count
        if self.groups:
            shape[self.groups[0]] *= self.groups[1]
        return tuple(shape)

    @property
    def is_repeated(self):
        return bool(self.groups) or any(count != 1 for count in self.repeats)

    @property
    def is_straight(self):
        return self.perm == tuple(range(len(self.perm)))

    @property
    def has_shape(self):
        """Whether the dimensions of the value are those of `shape`, so that no reshape is pending."""
        return sizes(self.shape) == sizes(self.value.dims)

    def with_value(self, value):
        """Returns the same view of another value with the same sizes."""
        return dataclasses.replace(self, value=value)

    def keeps_last(self):
        """Whether the last dimension in PyTorch's order is the last dimension of the value."""
        return (len(self.perm) > 0 and len(self.value.dims) > 0 and self.perm[-1] == len(self.perm) - 1
                and self.shape[-1].size == self.value.dims[-1].size)


def permuted(view, order):
    """Returns the view whose dimension i is dimension order[i] of `view`."""
    repeats = tuple(view.repeats[d] for d in order) if view.repeats else ()
    groups = (order.index(view.groups[0]), view.groups[1]) if view.groups else ()
    return dataclasses.replace(view, perm=tuple(view.perm[d] for d in order), repeats=repeats, groups=groups)


def transposed(view):
    """Returns the view with its last two dimensions swapped."""
    rank = len(view.perm)
    return permuted(view, [*range(rank - 2), rank - 1, rank - 2])


def inverse(perm):
    order = [0] * len(perm)
    for i, d in enumerate(perm):
        order[d] = i
    return tuple(order)


class ViewOperations:
    """Moves dimensions of views. `emit(op, inputs, attrs)` adds a node and returns its result."""

    def __init__(self, emit):
        self._emit = emit

    def plain(self, view):
        """Refuses views that repeat elements: only broadcasting operations can read them."""
        if view.is_repeated:
            raise Refused("Weir has no operation that repeats elements; only add, sub, mul, div, maximum and minimum "
                          "broadcast their operands")
        return view

    def settle_shape(self, view):
        """Returns the view without a pending reshape; its permutation stays."""
        if view.has_shape:
            return dataclasses.replace(view, shape=view.value.dims)
        return dataclasses.replace(view, value=self._emit("reshape", [view.value], {"to": view.shape}))

    def settle(self, view):
        """Returns the value in PyTorch's order."""
        view = self.plain(view)
        # The places of dimensions of size 1 do not matter for the order of elements.
        moved = [d for d in view.perm if view.shape[d].size != 1]
        if moved == sorted(moved):
            if sizes(view.dims) == sizes(view.value.dims):
                return view.value
            return self._emit("reshape", [view.value], {"to": view.dims})
        view = self.settle_shape(view)
        return self._emit("transpose", [view.value], {"perm": list(view.perm)})

    def settle_last(self, view):
        """Returns a view, without repetition, whose value ends in the last dimension of PyTorch."""
        view = self.plain(view)
        if view.keeps_last():
            return view
        if view.perm and view.perm[-1] == len(view.perm) - 1:
            # The reshape of the last dimension alone; what it does to the dimensions before stays pending.
            of_value, of_shape = dims_.match_runs(sizes(view.value.dims), sizes(view.shape))[-1]
            if len(of_shape) == 1 and of_value:
                to = view.value.dims[:of_value[0]] + (view.shape[-1],)
                return view.with_value(self._emit("reshape", [view.value], {"to": to}))
        return View.of(self.settle(view))

    def reshape(self, view, target):
        """Returns the view under the sizes `target`."""
        target = tuple(target)
        if view.is_repeated:
            return self._reshape_repeated(view, target)
        if view.is_straight:
            shape = dims_.reshaped(view.value.dims, target)
            result = View(view.value, shape, tuple(range(len(shape))))
            # What splits a dimension becomes a node at once, so that all readers see one value.
            splits = sum(size != 1 for size in target) > sum(size != 1 for size in sizes(view.value.dims))
            return self.settle_shape(result) if splits else result
        groups = self._base_groups(view, target)
        if groups is None:
            value = self.settle(view)
            return View(value, dims_.reshaped(value.dims, target), tuple(range(len(target))))
        shape, place = [], {}
        for base in sorted(groups, key=lambda group: group[0]):
            for j in base[1]:
                place[j] = len(shape)
                shape.append(target[j])
        named = dims_.reshaped(view.value.dims, tuple(shape))
        return View(view.value, named, tuple(place[j] for j in range(len(target))))

    @staticmethod
    def _base_groups(view, target):
        """Returns [(place in the value, dimensions of the target)] if the reshape stays within stretches of it."""
        groups, previous = [], -1.0
        for of_source, of_target in dims_.match_runs(sizes(view.dims), target):
            places = [view.perm[i] for i in of_source]
            if places and places != list(range(places[0], places[0] + len(places))):
                return None
            previous = places[-1] if places else previous
            groups.append((places[0] if places else previous + 0.5, list(of_target)))
        # The dimensions of size 1 that have no place of their own follow the dimension before them.
        return groups

    def _reshape_repeated(self, view, target):
        """A reshape that only adds or drops dimensions of size 1, or joins repeated heads to the dimension before."""
        source = view.torch_shape
        if view.groups:
            if source == target:
                return view
            raise Refused("Weir repeats heads only for attention")
        repeats = list(view.repeats)
        runs = dims_.match_runs(source, target)
        if all(len(a) == 1 and len(b) == 1 or not b or not a for a, b in runs):
            kept = [None] * len(target)
            for a, b in runs:
                if a and b:
                    kept[b[0]] = repeats[a[0]]
            unrepeated = tuple(target[j] // (kept[j] or 1) for j in range(len(target)))
            bare = self.reshape(dataclasses.replace(view, repeats=()), unrepeated)
            return dataclasses.replace(bare, repeats=tuple(count or 1 for count in kept))
        for a, b in runs:
            if len(a) == 2 and len(b) == 1 and repeats[a[0]] == 1 and repeats[a[1]] > 1:
                count, at = repeats[a[1]], b[0]
                if sum(r != 1 for r in repeats) == 1:
                    bare = self.reshape(dataclasses.replace(view, repeats=()),
                                        tuple(n // count if j == at else n for j, n in enumerate(target)))
                    return dataclasses.replace(bare, groups=(at, count))
        raise Refused("Weir has no operation that repeats elements; only add, sub, mul, div, maximum and minimum "
                      "broadcast their operands")

    def slice(self, view, axis, begin, size):
        """Returns elements `begin` to `begin + size - 1` along an axis in PyTorch's order."""
        if view.torch_shape[axis] == size:
            return view
        if view.repeats and view.repeats[axis] != 1:
            repeats = tuple(size if d == axis else count for d, count in enumerate(view.repeats))
            return dataclasses.replace(view, repeats=repeats)
        if view.groups and view.groups[0] == axis:
            raise Refused("Weir repeats heads only for attention")
        place = view.perm[axis]
        at_end = place == len(view.shape) - 1 and view.value.dims and view.shape[-1].size == view.value.dims[-1].size
        if not view.has_shape and not at_end:
            view = self.settle_shape(view)
        base_axis = len(view.value.dims) - 1 if at_end else place
        value = self._emit("slice", [view.value], {"axis": base_axis, "begin": begin, "size": size})
        shape = view.shape[:place] + (value.dims[base_axis],) + view.shape[place + 1:]
        return dataclasses.replace(view, value=value, shape=shape)

    def to_order(self, view, perm, rank):
        """Returns a value that broadcasts against one whose dimension perm[i] is PyTorch's dimension i of `rank`."""
        view = dataclasses.replace(view, repeats=())
        if len(view.perm) < rank:
            view = self.reshape(view, (1,) * (rank - len(view.perm)) + sizes(view.dims))
        view = permuted(view, inverse(perm))
        shape = sizes(view.dims)
        leading = 0
        while leading < len(shape) - 1 and shape[leading] == 1:
            leading += 1
        return self.settle(self.reshape(view, shape[leading:]) if leading else view)
