"""The inputs of a job as weir.from_torch takes them: their types, and the parameters of `forward` that they are."""

import inspect
import operator
import re

from weir.dims import Dim
from weir.errors import Error
from weir.graph import Value

_TYPE = re.compile(r"(\w+)\s*\[(.*)\]$")
_INTEGER_NAMES = ("tokens", "targets", "labels")
_LONG = ("i64", "int64", "int32", "int", "long")


def _size(name, value):
    """Returns a size, or None of what is not a number."""
    if isinstance(value, str) and value.strip().isdigit():
        raise Error(f"size {name}: expected a number; found {value!r}. Try: {name}={value.strip()}")
    try:
        number = operator.index(value)
    except TypeError:
        return None
    if isinstance(value, bool) or number < 1:
        raise Error(f"size {name}: expected a number that is at least 1; found {value!r}")
    return number


def _type_parts(name, text):
    """Returns (element type, items between the brackets) of the text of a type."""
    match = _TYPE.match(text.strip())
    if not match:
        raise Error(f"input {name}: expected a type such as \"f32[batch, features]\"; found \"{text}\"")
    dtype, items = match.group(1), match.group(2)
    if dtype not in ("f32", "i32", "bool"):
        hint = f"i32[{items}] (PyTorch's long is i32 here)" if dtype in _LONG else f"f32[{items}]"
        raise Error(f"input {name}: expected the element type f32, i32 or bool; found {dtype}. Try: {hint}")
    return dtype, [item.strip() for item in items.split(",")]


def _read_input(name, given, table):
    """Returns the graph input for a tuple of names of dimensions, or for the text of a type."""
    dtype = "i32" if name in _INTEGER_NAMES or name.endswith("ids") else "bool" if name.endswith("mask") else "f32"
    items = given
    if isinstance(given, str):
        dtype, items = _type_parts(name, given)
    if not all(isinstance(item, str) for item in items):
        raise Error(f"input {name}: expected names of dimensions such as (\"batch\", \"sequence\"), or a type such as "
                    f"\"f32[batch, features]\"; found {given!r}")
    dims = []
    for item in items:
        label, _, size = (part.strip() for part in item.partition("="))
        if size:
            if not size.isdigit() or int(size) < 1:
                raise Error(f"input {name}: expected a size of {label} that is at least 1; found \"{size}\"")
            if table.setdefault(label, int(size)) != int(size):
                raise Error(f"input {name}: expected {label}={table[label]}, as elsewhere; found {label}={size}")
        if label not in table:
            raise Error(f"input {name}: expected a size for the dimension \"{label}\"; found none. "
                        f"Try: weir.from_torch(model, ..., {label}=8)")
        dims.append(Dim(table[label], label))
    return Value(tuple(dims), dtype, name)


def declared_inputs(given):
    """Returns the graph inputs for keywords that declare inputs, beside keywords with the sizes of dimensions."""
    table = {key: size for key, size in ((key, _size(key, value)) for key, value in given.items()) if size is not None}
    sizes = list(table)
    for key, value in given.items():
        if key not in table and not isinstance(value, (str, list, tuple)):
            found = type(value).__name__ if hasattr(value, "shape") else repr(value)
            raise Error(f"{key}: expected a size, such as 8, or an input with names of dimensions, such as (\"batch\", "
                        f"\"sequence\"), or with a type, such as \"f32[batch, features]\"; found {found}")
    declared = [_read_input(key, value, table) for key, value in given.items() if key not in sizes]
    if not declared:
        raise Error("expected the inputs of the model; found none. Try: weir.from_torch(model, tokens=(\"batch\", "
                    "\"sequence\"), targets=(\"batch\", \"sequence\"), batch=8, sequence=64)")
    used = {dim.name: None for value in declared for dim in value.dims}
    for key in sizes:
        if key not in used:
            raise Error(f"size {key}: expected a dimension of the inputs ({', '.join(used)}); found no input with the "
                        f"dimension \"{key}\"")
    # Only the first input with a name keeps the name. Whether another input means the same dimension follows from the
    # operations: the features of x and those of the targets may be two things.
    named = set()
    for value in declared:
        value.dims = tuple(Dim(dim.size) if axis > 0 and dim.name in named else dim
                           for axis, dim in enumerate(value.dims))
        named.update(dim.name for dim in value.dims)
    return declared


def bind_inputs(model, names, has_targets):
    """Returns (function that gives the arguments of the model from the list of inputs, place of the targets or None).

    An input whose name is a parameter of `forward` is passed by this name. The others, but not `targets`, are passed
    in order to the parameters that are left.
    """
    parameters = [name for name, parameter in inspect.signature(model.forward).parameters.items()
                  if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)]
    free = [name for name in parameters if name not in names]
    given = {}
    for place, name in enumerate(names):
        if name in parameters:
            given[name] = place
        elif not (has_targets and name == "targets"):
            if name == "labels":
                raise Error("input labels: the targets of the loss are called `targets`, and the model's forward has "
                            f"no parameter labels ({', '.join(parameters) or 'none'}). Try: targets=")
            if not free:
                raise Error(f"expected an input of the model for \"{name}\"; found that forward takes "
                            f"{', '.join(parameters) or 'nothing'}")
            given[free.pop(0)] = place
    targets = names.index("targets") if has_targets else None

    def bind(inputs):
        return (), {name: inputs[place] for name, place in given.items()}

    return bind, targets
