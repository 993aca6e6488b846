"""Dimensions of tensors: sizes, the names that the user gave, and what becomes of the names in a reshape."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Dim:
    """A Dim is one dimension. `name` is the user's name for the dimension, or empty if the user gave none.

    `parts` are the dimensions that a reshape merged into this one, from major to minor; empty if nothing was merged.
    """
    size: int
    name: str = ""
    parts: tuple = ()

    def atoms(self):
        """Returns the dimensions of which this one is made, from major to minor."""
        return self.parts or (self,)


def sizes(dims):
    return tuple(dim.size for dim in dims)


def merged(dims):
    """Returns one dimension made of several."""
    atoms = [atom for dim in dims for atom in dim.atoms() if atom.size != 1 or atom.name]
    if len(atoms) == 1:
        return atoms[0]
    return Dim(math.prod(dim.size for dim in dims), "", tuple(atoms))


def match_runs(source, target):
    """Pairs the sizes of two shapes with equally many elements.

    Returns pairs (range of source, range of target): the shortest stretches of both shapes with equal products, from
    the first dimension on. A dimension of size 1 may face an empty stretch.
    """
    runs, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        if i < len(source) and j < len(target) and source[i] == target[j]:
            runs.append((range(i, i + 1), range(j, j + 1)))
            i, j = i + 1, j + 1
            continue
        if i < len(source) and source[i] == 1:
            runs.append((range(i, i + 1), range(j, j)))
            i += 1
            continue
        if j < len(target) and target[j] == 1:
            runs.append((range(i, i), range(j, j + 1)))
            j += 1
            continue
        if i >= len(source) or j >= len(target):
            raise ValueError(f"{source} and {target} hold different numbers of elements")
        begin_i, begin_j = i, j
        left, right = source[i], target[j]
        i, j = i + 1, j + 1
        while left != right:
            if (i if left < right else j) >= len(source if left < right else target):
                raise ValueError(f"{source} and {target} hold different numbers of elements")
            if left < right:
                left *= source[i]
                i += 1
            else:
                right *= target[j]
                j += 1
        runs.append((range(begin_i, i), range(begin_j, j)))
    return runs


def reshaped(dims, target):
    """Returns the dimensions that a reshape to the sizes `target` makes of `dims`; names pass where elements allow."""
    result = [Dim(size) for size in target]
    for of_source, of_target in match_runs(sizes(dims), target):
        source = [dims[i] for i in of_source]
        if len(of_target) == 1 and source:
            result[of_target[0]] = merged(source)
            continue
        atoms = [atom for dim in source for atom in dim.atoms()]
        for j in of_target:
            taken, product = [], 1
            while atoms and product < target[j] and target[j] % (product * atoms[0].size) == 0:
                product *= atoms[0].size
                taken.append(atoms.pop(0))
            if not taken or product != target[j]:
                break  # from here on, the dimensions have no parts in common with the source
            result[j] = merged(taken)
    return tuple(result)
