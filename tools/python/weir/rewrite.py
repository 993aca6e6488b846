"""Passes over a graph: what PyTorch spells out in many operations and Weir has as one, and what nobody reads.

Each pass changes the graph in place and keeps the values of the loss and of all gradients, up to rounding.
"""

import math

from weir.dims import Dim, sizes
from weir.graph import Cut, Parameter, make_node

_RELATIVE = 1e-6  # two constants of a formula that differ by less are the same


def simplify(graph, make_constant):
    """Runs all passes. `make_constant(values, shape)` returns a folded constant of a list of numbers."""
    join_equal_nodes(graph)
    fuse_rms_norm(graph, make_constant)
    fuse_rotary(graph)
    fuse_activations(graph)
    move_slices(graph)
    split_parameters(graph)
    split_projections(graph)
    fuse_projections(graph)
    lower_scalars(graph, make_constant)
    join_equal_nodes(graph)
    remove_dead(graph)
    name_parts(graph)


def remove_dead(graph):
    """Removes nodes and parameters that the loss does not read, and gives the rest their producers again."""
    alive, nodes = {graph.loss}, []
    for node in reversed(graph.nodes):
        if node.output in alive:
            alive.update(node.inputs)
            nodes.append(node)
    graph.nodes = nodes[::-1]
    graph.parameters = [parameter for parameter in graph.parameters if parameter in alive]


def join_equal_nodes(graph):
    """Joins nodes of one module that compute the same from the same values."""
    known, replacements, kept = {}, {}, []
    for node in graph.nodes:
        node.inputs = [replacements.get(value, value) for value in node.inputs]
        key = (node.op, tuple(id(value) for value in node.inputs), repr(sorted(node.attrs.items())), node.module)
        if node.op != "dropout" and key in known:
            replacements[node.output] = known[key]
            continue
        known[key] = node.output
        kept.append(node)
    graph.nodes = kept
    graph.loss = replacements.get(graph.loss, graph.loss)


class _Matcher:
    """Reads formulas backwards from their result."""

    @staticmethod
    def inputs(value, op, /, **attrs):
        """Returns the inputs of the node that makes `value`, or None if the node is another."""
        node = value.producer
        if node is None or node.op != op:
            return None
        for name, wanted in attrs.items():
            found = node.attrs.get(name)
            if isinstance(wanted, float):
                if found is None or abs(found - wanted) > _RELATIVE * max(1.0, abs(wanted)):
                    return None
            elif found != wanted:
                return None
        return node.inputs

    @classmethod
    def pairs(cls, value, op):
        """Returns the inputs of a commutative operation in both orders."""
        inputs = cls.inputs(value, op)
        return [] if inputs is None else [tuple(inputs), tuple(inputs[::-1])]


def _insert(graph, before, nodes):
    """Puts nodes before the node `before`."""
    place = graph.nodes.index(before)
    graph.nodes[place:place] = nodes


def _substitute(graph, node, new_nodes):
    """Puts nodes in the place of `node`; the last of them makes its result."""
    _insert(graph, node, new_nodes)
    graph.nodes.remove(node)
    graph.replace({node.output: new_nodes[-1].output})


def _inverse_rms(value):
    """Returns (x, epsilon) if `value` is 1 / sqrt(mean of x^2 + epsilon) over the last dimension, kept with size 1."""
    match = _Matcher
    reshape = match.inputs(value, "reshape")
    inner = reshape[0] if reshape else value
    rsqrt = match.inputs(inner, "rsqrt")
    shifted = match.inputs(rsqrt[0], "add_scalar") if rsqrt else None
    if not shifted:
        return None
    epsilon = rsqrt[0].producer.attrs["value"]
    mean = shifted[0]
    again = match.inputs(mean, "reshape")
    mean = again[0] if again else mean
    reduced = match.inputs(mean, "reduce_mean")
    if not reduced:
        return None
    square = match.inputs(reduced[0], "square")
    if square is None:
        product = match.inputs(reduced[0], "mul")
        square = product[:1] if product and product[0] is product[1] else None
    if square is None or mean.producer.attrs.get("axes") != [len(square[0].dims) - 1]:
        return None
    x = square[0]
    if sizes(value.dims) != sizes(x.dims)[:-1] + (1,):
        return None
    return x, epsilon


def fuse_rms_norm(graph, make_constant):
    """Makes `rms_norm` of x * rsqrt(mean(x^2) + epsilon) * gamma."""
    for node in list(graph.nodes):
        if node not in graph.nodes or node.op != "mul":
            continue
        for normed, gamma in _Matcher.pairs(node.output, "mul"):
            if len(gamma.dims) != 1 or gamma.dims[0].size != normed.dims[-1].size:
                continue
            for x, scale in _Matcher.pairs(normed, "mul"):
                found = _inverse_rms(scale)
                if found and found[0] is x:
                    _substitute(graph, node, [make_node("rms_norm", [x, gamma], {"epsilon": found[1]}, node.module,
                                                        node.line)])
                    break
            else:
                continue
            break
    remove_dead(graph)
    for node in list(graph.nodes):  # norms without a weight
        for x, scale in _Matcher.pairs(node.output, "mul"):
            found = _inverse_rms(scale)
            if found and found[0] is x:
                ones = make_constant([1.0] * x.dims[-1].size, (x.dims[-1].size,))
                _substitute(graph, node, [make_node("rms_norm", [x, ones], {"epsilon": found[1]}, node.module,
                                                    node.line)])
                break
    remove_dead(graph)


def rotary_base(cosines, sines):
    """Returns the base of Weir's `rotary` if the tables [position, d] are those of that operation, or else None.

    The tables may be rounded to f32, so an angle may be wrong by the rounding of f32 at its size.
    """
    positions, width = len(cosines), len(cosines[0])
    half = width // 2
    if width % 2 or len(sines) != positions:
        return None
    base = 10000.0
    if half > 1 and positions > 1:
        rate = math.atan2(sines[1][1], cosines[1][1])
        if not 0 < rate < 1:
            return None
        base = rate ** (-half)
        if round(base) > 0 and abs(round(base) / base - 1) < 1e-4:
            base = float(round(base))
    for position in range(positions):
        for i in range(width):
            angle = position * base ** (-(i % half) / half)
            limit = 1e-6 + 3e-7 * angle
            if (abs(cosines[position][i] - math.cos(angle)) > limit
                    or abs(sines[position][i] - math.sin(angle)) > limit):
                return None
    return base


def _table(value, x):
    """Returns the rows [position, d] of a folded table that multiplies x [b, s, h, d] along s and d, or None."""
    if not isinstance(value, Parameter) or value.constant is None or len(x.dims) != 4:
        return None
    if sizes(value.dims) != (x.dims[1].size, 1, x.dims[3].size):
        return None
    return value.constant.reshape(x.dims[1].size, x.dims[3].size).tolist()


def _is_rotated_half(value, x):
    """Returns whether `value` is [-second half, first half] of x along the last dimension."""
    parts = _Matcher.inputs(value, "concat", axis=3) if len(x.dims) == 4 else None
    if not parts or len(parts) != 2:
        return False
    half = x.dims[3].size // 2
    second = _Matcher.inputs(parts[0], "scale", factor=-1.0)
    if not second:
        return False
    return (_Matcher.inputs(second[0], "slice", axis=3, begin=half, size=half) == [x]
            and _Matcher.inputs(parts[1], "slice", axis=3, begin=0, size=half) == [x])


def fuse_rotary(graph):
    """Makes `rotary` of x * cos + rotate_half(x) * sin, if the tables are those of `rotary`."""
    bases = {}
    for node in list(graph.nodes):
        if node.op != "add":
            continue
        found = None
        for left, right in _Matcher.pairs(node.output, "add"):
            for x, cosines in _Matcher.pairs(left, "mul"):
                for rotated, sines in _Matcher.pairs(right, "mul"):
                    if found or not _is_rotated_half(rotated, x):
                        continue
                    key = (cosines, sines)
                    if key not in bases:
                        tables = _table(cosines, x), _table(sines, x)
                        bases[key] = rotary_base(*tables) if all(tables) else None
                    if bases[key] is not None:
                        found = x, bases[key]
        if found:
            _substitute(graph, node, [make_node("rotary", [found[0]], {"base": found[1]}, node.module, node.line)])
    remove_dead(graph)


def _tanh_gelu(value):
    """Returns x if `value` is x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    match = _Matcher
    for half, rest in match.pairs(value, "mul"):
        x = match.inputs(half, "scale", factor=0.5)
        tanh = match.inputs(rest, "add_scalar", value=1.0)
        scaled = match.inputs(tanh[0], "tanh") if x and tanh else None
        total = match.inputs(scaled[0], "scale", factor=math.sqrt(2 / math.pi)) if scaled else None
        for first, cubic in match.pairs(total[0], "add") if total else []:
            cube = match.inputs(cubic, "scale", factor=0.044715)
            if first is x[0] and cube and match.inputs(cube[0], "power", exponent=3.0) == [x[0]]:
                return x[0]
    return None


def _erf_gelu(value):
    """Returns x if `value` is x / 2 * (1 + erf(x / sqrt(2)))."""
    match = _Matcher
    for half, rest in match.pairs(value, "mul"):
        x = match.inputs(half, "scale", factor=0.5)
        shifted = match.inputs(rest, "add_scalar", value=1.0)
        erf = match.inputs(shifted[0], "erf") if x and shifted else None
        if erf and match.inputs(erf[0], "scale", factor=math.sqrt(0.5)) == [x[0]]:
            return x[0]
    return None


def _silu(value):
    """Returns x if `value` is x * sigmoid(x)."""
    for x, rest in _Matcher.pairs(value, "mul"):
        if _Matcher.inputs(rest, "sigmoid") == [x]:
            return x
    return None


def fuse_activations(graph):
    """Makes `gelu`, `gelu_exact` and `silu` of their formulas."""
    for node in list(graph.nodes):
        if node.op != "mul":
            continue
        for op, find in (("gelu", _tanh_gelu), ("gelu_exact", _erf_gelu), ("silu", _silu)):
            x = find(node.output)
            if x is not None:
                _substitute(graph, node, [make_node(op, [x], {}, node.module, node.line)])
                break
    remove_dead(graph)


def fuse_projections(graph):
    """Lets a product apply the activation that is the only reader of its result."""
    users = graph.users()
    for node in list(graph.nodes):
        if node.op not in ("relu", "gelu", "gelu_exact", "silu"):
            continue
        product = node.inputs[0].producer
        if product is None or product.op != "matmul" or product.attrs.get("activation"):
            continue
        if len(users[node.inputs[0]]) > 1:
            continue
        attrs = {**product.attrs, "activation": node.op}
        fused = make_node("matmul", product.inputs, attrs, product.module, product.line)
        _substitute(graph, node, [fused])
        graph.nodes.remove(product)


def move_slices(graph):
    """Moves a slice before the reshape that splits the last dimension, if the slice takes whole stretches of it."""
    for node in list(graph.nodes):
        if node.op != "slice":
            continue
        outer = node.inputs[0]
        reshape = _Matcher.inputs(outer, "reshape")
        if not reshape:
            continue
        x, axis = reshape[0], node.attrs["axis"]
        last = len(x.dims) - 1
        if axis != last or len(outer.dims) <= len(x.dims) or sizes(outer.dims[:last]) != sizes(x.dims[:last]):
            continue
        inner = math.prod(sizes(outer.dims[axis + 1:]))
        part = make_node("slice", [x], {"axis": last, "begin": node.attrs["begin"] * inner,
                                        "size": node.attrs["size"] * inner}, node.module, node.line)
        _substitute(graph, node, [part, make_node("reshape", [part.output], {"to": node.output.dims}, node.module,
                                                  node.line)])
    remove_dead(graph)


def _segments(slices, size):
    """Returns the sorted distinct (begin, size) of slices if they cover 0 to size - 1 without overlap, or else None."""
    parts = sorted({(node.attrs["begin"], node.attrs["size"]) for node in slices})
    end = 0
    for begin, length in parts:
        if begin != end:
            return None
        end = begin + length
    return parts if end == size and len(parts) > 1 else None


def _part_of(parameter, axis, view, cut_axis, begin, size, number):
    """Returns the parameter that holds a part of another one.

    Along `axis`, the other parameter is seen under the sizes `view`, and elements `begin` to `begin + size - 1` along
    dimension `cut_axis` of these are taken.
    """
    shape = sizes(parameter.dims[:axis]) + view + sizes(parameter.dims[axis + 1:])
    taken = math.prod(view) // view[cut_axis] * size
    dims = parameter.dims[:axis] + (Dim(taken),) + parameter.dims[axis + 1:]
    return Parameter(dims, parameter.dtype, f"{parameter.name}.{number}",
                     cut=Cut(parameter.cut.source, shape, axis + cut_axis, begin, size), decay=parameter.decay,
                     frozen=parameter.frozen)


def split_parameters(graph):
    """Cuts a parameter that is only read in stretches of one dimension into one parameter per stretch."""
    users, replacements = graph.users(), {}
    for parameter in list(graph.parameters):
        slices = users.get(parameter, [])
        axes = {node.attrs["axis"] if node.op == "slice" else -1 for node in slices}
        if parameter.cut is None or not parameter.cut.is_whole() or len(axes) != 1 or min(axes) < 0:
            continue
        axis = axes.pop()
        parts = _segments(slices, parameter.dims[axis].size)
        for number, (begin, size) in enumerate(parts or ()):
            part = _part_of(parameter, axis, (parameter.dims[axis].size,), 0, begin, size, number)
            graph.parameters.append(part)
            replacements.update({node.output: part for node in slices
                                 if (node.attrs["begin"], node.attrs["size"]) == (begin, size)})
    graph.replace(replacements)
    remove_dead(graph)


def _read_in_parts(node, users):
    """Returns (slices, sizes under which they see the last dimension, their dimension of these), or None.

    The readers of the result are slices of the last dimension, or one reshape splits the last dimension, into heads for
    instance, and its readers are slices of one of the new dimensions.
    """
    readers = users.get(node.output, [])
    last = len(node.output.dims) - 1
    view = (node.output.dims[last].size,)
    if len(readers) == 1 and readers[0].op == "reshape":
        split = readers[0].output
        if len(split.dims) <= last or sizes(split.dims[:last]) != sizes(node.output.dims[:last]):
            return None
        view, readers = sizes(split.dims[last:]), users.get(split, [])
    axes = {reader.attrs["axis"] if reader.op == "slice" else -1 for reader in readers}
    if len(axes) != 1 or min(axes) < last:
        return None
    return readers, view, axes.pop() - last


def split_projections(graph):
    """Cuts a projection whose result is only read in parts into one projection per part.

    The parts are stretches of the last dimension (q, k and v side by side), or stretches within each head.
    """
    users = graph.users()
    for node in list(graph.nodes):
        if node.op != "matmul" or node.attrs.get("activation") or node.output is graph.loss:
            continue
        found = _read_in_parts(node, users)
        if found is None:
            continue
        slices, view, cut_axis = found
        parts = _segments(slices, view[cut_axis])
        owned = node.inputs[1:]
        if parts is None or any(not isinstance(p, Parameter) or p.cut is None or not p.cut.is_whole()
                                or len(users[p]) != 1 for p in owned):
            continue
        replacements = {}
        axes = [0 if node.attrs.get("transpose_w") else 1, 0]
        for number, (begin, size) in enumerate(parts):
            cut = [_part_of(p, axis, view, cut_axis, begin, size, number) for p, axis in zip(owned, axes)]
            graph.parameters += cut
            made = [make_node("matmul", [node.inputs[0], *cut], node.attrs, node.module, node.line)]
            like = next(part for part in slices if (part.attrs["begin"], part.attrs["size"]) == (begin, size))
            if len(view) > 1:
                made.append(make_node("reshape", [made[0].output], {"to": like.output.dims}, like.module, like.line))
            _insert(graph, node, made)
            for part in slices:
                if (part.attrs["begin"], part.attrs["size"]) == (begin, size):
                    replacements[part.output] = made[-1].output
        graph.replace(replacements)
    remove_dead(graph)


def name_parts(graph):
    """Puts a reshape after each slice and concat whose axis may be an axis of its own further on.

    Weir names the axis of a part like the axis of the whole, and operations on two tensors want equal names. A reshape
    to the same sizes gives the part a name of its own.
    """
    users = graph.users()
    for node in list(graph.nodes):
        if node.op not in ("slice", "concat"):
            continue
        axis = node.attrs["axis"]
        size = node.output.dims[axis].size
        if size == 1 or size == node.inputs[0].dims[axis].size:
            continue
        readers = users.get(node.output, [])
        if all(reader.op == "reshape" for reader in readers):
            continue
        dims = node.output.dims[:axis] + (Dim(size),) + node.output.dims[axis + 1:]
        named = make_node("reshape", [node.output], {"to": dims}, node.module, node.line)
        for reader in readers:
            reader.inputs = [named.output if value is node.output else value for value in reader.inputs]
        graph.nodes.insert(graph.nodes.index(node) + 1, named)


def lower_scalars(graph, make_constant):
    """Makes `add` with a frozen number of what is left of "add_scalar"."""
    for node in graph.nodes:
        if node.op == "add_scalar":
            node.op = "add"
            node.inputs = [node.inputs[0], make_constant([node.attrs["value"]], (1,))]
            node.attrs = {}
