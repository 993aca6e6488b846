"""Cuts a graph into functions of Weir: what lies under a repeated module becomes one function and a call per module.

The rest of the graph belongs to the function `main`. Parameters keep their names of the state_dict: a parameter of a
call is called after the call and its own name in the function, and the call is called after the path of its module.
"""

import dataclasses
import re

from weir.dims import sizes
from weir.graph import Parameter, Value
from weir.textproto import Message

_MOVES = ("reshape", "transpose")
_NAME = re.compile(r"[^A-Za-z0-9_.]")


@dataclasses.dataclass(eq=False)
class Function:
    """A Function has inputs, parameters of its own, nodes and outputs. `names` gives the name of each value in it."""
    name: str
    inputs: list
    parameters: list
    nodes: list
    outputs: list
    names: dict


@dataclasses.dataclass(eq=False)
class Call:
    """A Call runs a function under the name `name`: `inputs` and `outputs` are values of `main`."""
    name: str
    function: Function
    inputs: list
    outputs: list


@dataclasses.dataclass(eq=False)
class Model:
    """A Model is a graph cut into functions. `body` lists nodes of `main` and calls, in order."""
    functions: list
    body: list
    main: Function
    loss: Value
    weights: dict  # name of a weight in Weir's files -> parameter


def block_path(module, blocks):
    """Returns the path of the outermost repeated module around a module, or None. `blocks` are the paths of all."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path in blocks:
            return path
    return None


def cut_into_functions(graph, blocks, classes):
    """Returns the Model. `blocks` lists paths of repeated modules, and `classes` gives the class of each as a text."""
    block_of = {}
    for node in graph.nodes:
        path = block_path(node.module, blocks)
        if path is not None:
            block_of.setdefault(path, []).append(node)
    block_of = {path: nodes for path, nodes in block_of.items() if _is_closed(graph, nodes)}
    calls, functions, inside = {}, [], set()
    for path, nodes in block_of.items():
        call = _make_call(graph, path, nodes, classes[path])
        if call is None:
            continue
        for known in functions:
            if _same(known, call.function):
                _adopt(call, known)
                break
        else:
            used = {function.name for function in functions}
            call.function.name = _unused(_NAME.sub("_", classes[path]), used | {"main"})
            functions.append(call.function)
        calls[path] = call
        inside.update(nodes)
    call_of_node = {node: calls[path] for path, nodes in block_of.items() if path in calls for node in nodes}
    body = _ordered(graph, call_of_node)
    return _with_main(graph, functions, body, calls)


def _is_closed(graph, nodes):
    """Returns whether nothing outside reads a result of `nodes` and is read by them again."""
    own = set(nodes)
    tainted = set()
    for node in graph.nodes:
        if node in own:
            if any(value in tainted for value in node.inputs):
                return False
            continue
        if any(value in tainted or value.producer in own for value in node.inputs if value.producer is not None):
            tainted.add(node.output)
    return True


def _make_call(graph, path, nodes, class_name):
    own = set(nodes)
    readers = graph.users()
    inputs, parameters = [], []
    for node in nodes:
        for value in node.inputs:
            if value.producer in own or value in inputs or value in parameters:
                continue
            alone = all(reader in own for reader in readers[value])
            if isinstance(value, Parameter) and value.name.startswith(path + ".") and alone:
                parameters.append(value)
            else:
                inputs.append(value)
    outputs = [node.output for node in nodes
               if node.output is graph.loss or any(reader not in own for reader in readers.get(node.output, []))]
    if not outputs:
        return None
    names = {}
    taken = set()
    for parameter in parameters:
        names[parameter] = _claim(parameter.name[len(path) + 1:], taken)
    carried = [value for value in inputs if not isinstance(value, Parameter)]
    for number, value in enumerate(inputs):
        wanted = "x" if carried and value is carried[0] else f"shared_{number}"
        names[value] = _claim(wanted, taken)
    _name_nodes(nodes, path, names, taken)
    function = Function(class_name, inputs, parameters, nodes, outputs, names)
    return Call(path, function, list(inputs), list(outputs))


def _claim(name, taken):
    name = _unused(_NAME.sub("_", name), taken)
    taken.add(name)
    return name


def _unused(name, taken):
    result, number = name, 1
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    return result


def _name_nodes(nodes, path, names, taken):
    """Names each node after its module; the operation is added where a module runs several operations.

    What only moves elements does not count: a module's product or norm has the name of the module all the same.
    """
    counts = {}
    for node in nodes:
        if node.op not in _MOVES:
            counts[node.module] = counts.get(node.module, 0) + 1
    for node in nodes:
        inner = node.module[len(path):].lstrip(".") if path else node.module
        if inner and counts.get(node.module) == 1 and node.op not in _MOVES:
            wanted = inner
        else:
            wanted = f"{inner}.{node.op}" if inner else node.op
        names[node.output] = _claim(wanted, taken)


def _shape_key(dims):
    return tuple((dim.size, dim.name) for dim in dims)


def _key(function):
    """Returns a description of a function that is equal for functions that compute the same."""
    places = {}
    for value in function.inputs + function.parameters:
        places[value] = len(places)
    lines = [("input", _shape_key(value.dims), value.dtype, isinstance(value, Parameter)) for value in function.inputs]
    lines += [("parameter", function.names[p], sizes(p.dims), p.decay, p.frozen) for p in function.parameters]
    for node in function.nodes:
        attrs = tuple(sorted((name, repr(_shape_key(value) if isinstance(value, tuple) else value))
                             for name, value in node.attrs.items()))
        lines.append((node.op, tuple(places[value] for value in node.inputs), attrs))
        places[node.output] = len(places)
    lines.append(tuple(places[value] for value in function.outputs))
    return lines


def _same(a, b):
    return _key(a) == _key(b)


def _adopt(call, function):
    """Makes a call use a function that was made for another call: the own parameters are then found by name."""
    call.function = dataclasses.replace(function, parameters=call.function.parameters, names={
        **function.names, **{mine: function.names[theirs]
                             for mine, theirs in zip(call.function.parameters, function.parameters)}})


def _ordered(graph, call_of_node):
    """Returns nodes of main and calls in an order in which everything is made before it is read.

    Nodes of main that need no call come first, so that few nodes stand between calls.
    """
    producer = {}
    for node in graph.nodes:
        producer[node.output] = call_of_node.get(node, node)
    items = list(dict.fromkeys(call_of_node.get(node, node) for node in graph.nodes))

    def needs(item):
        values = item.inputs
        return [producer[value] for value in values if value in producer and producer[value] is not item]

    done, order = set(), []

    def visit(item):
        stack = [(item, iter(needs(item)))]
        while stack:
            current, rest = stack[-1]
            following = next((need for need in rest if need not in done), None)
            if following is None:
                stack.pop()
                if current not in done:
                    done.add(current)
                    order.append(current)
            else:
                stack.append((following, iter(needs(following))))

    for item in items:
        visit(item)
    late = set()  # calls, and what needs them
    for item in order:
        if isinstance(item, Call) or any(need in late for need in needs(item)):
            late.add(item)
    counts = _only_for_step_means(graph)
    early = [item for item in order if item not in late and item not in counts]
    result = []
    for item in early + [item for item in order if item in late]:
        # A count stands beside its first reader, because a step_mean must not come through a call.
        if counts and any(need in counts for need in needs(item)):
            result += [count for count in order if count in counts]
            counts = set()
        result.append(item)
    return result


def _only_for_step_means(graph):
    """Returns the nodes that are step_mean, and those that only such nodes read."""
    readers, found = graph.users(), set()
    for node in reversed(graph.nodes):
        of_node = readers.get(node.output, [])
        if node.op == "step_mean" or of_node and all(reader in found for reader in of_node):
            found.add(node)
    return found


def _with_main(graph, functions, body, calls):
    inner = {parameter for call in calls.values() for parameter in call.function.parameters}
    nodes = [item for item in body if not isinstance(item, Call)]
    parameters = [parameter for parameter in graph.parameters if parameter not in inner]
    names, taken = {}, {call.name for call in calls.values()}
    for value in [*graph.inputs, *parameters]:
        names[value] = _claim(value.name, taken)
    taken.discard("loss")
    loss_name = _claim("loss", taken)
    _name_nodes([node for node in nodes if node.output is not graph.loss], "", names, taken)
    names[graph.loss] = loss_name
    for call in calls.values():
        for number, value in enumerate(call.outputs):
            if value is not graph.loss:
                names[value] = _claim(f"{call.name}.y" if len(call.outputs) == 1 else f"{call.name}.y{number}", taken)
    weights = {names[parameter]: parameter for parameter in parameters}
    for call in calls.values():
        for parameter in call.function.parameters:
            weights[f"{call.name}.{call.function.names[parameter]}"] = parameter
    main = Function("main", list(graph.inputs), parameters, nodes, [graph.loss], names)
    return Model(functions, body, main, graph.loss, weights)


class GraphPrinter:
    """Makes the message `graph` of a Model. Dimensions without a name of the user are called `_1`, `_2`, …"""

    def __init__(self, model, name):
        self._model = model
        self._name = name
        self._count = 0
        self._known = {}

    def message(self):
        functions = [self._function(function) for function in self._model.functions]
        main = self._main()
        graph = Message()
        graph.add("name", self._name)
        for name, size in self._known.items():
            graph.add("dim", Message([("name", name), ("size", size)]))
        for function in functions:
            graph.add("function", function)
        graph.add("function", main)
        graph.add("main", "main")
        return graph

    def _dim(self, dim):
        if dim.name:
            self._known.setdefault(dim.name, dim.size)
            return dim.name
        self._count += 1
        return f"_{self._count}={dim.size}"

    def _type(self, value):
        return f"{value.dtype}[{', '.join(self._dim(dim) for dim in value.dims)}]"

    def _declarations(self, message, function):
        for value in function.inputs:
            message.add("input", Message([("name", function.names[value]), ("type", self._type(value))]))
        for parameter in function.parameters:
            fields = Message([("name", function.names[parameter]), ("type", self._type(parameter))])
            if parameter.decay:
                fields.add("decay", True)
            if parameter.frozen:
                fields.add("frozen", True)
            message.add("parameter", fields)

    def _nodes(self, nodes, names):
        """Returns {node: message} in order. Both variances of one tensor are results of one reduce_variance."""
        messages = {}
        unbiased = {tuple(node.inputs): node for node in nodes if node.op == "unbiased_variance"}
        biased = {tuple(node.inputs) for node in nodes if node.op == "reduce_variance"}
        for node in nodes:
            if node.op == "unbiased_variance" and tuple(node.inputs) in biased:
                continue
            fields = self._node(node, names)
            other = unbiased.get(tuple(node.inputs))
            if node.op == "reduce_variance" and other is not None:
                fields.add("output", [names[node.output], names[other.output]])
            elif node.op == "unbiased_variance":
                fields[1] = ("op", "reduce_variance")
                fields.add("output", [f"{names[node.output]}_biased", names[node.output]])
            messages[node] = fields
        return messages

    def _node(self, node, names):
        fields = Message([("name", names[node.output]), ("op", node.op),
                          ("input", [names[value] for value in node.inputs])])
        if len(node.inputs) == 1:
            fields[-1] = ("input", names[node.inputs[0]])
        if node.op == "top_k":  # the graph reads its second result
            fields.add("output", [f"{names[node.output]}_values", names[node.output]])
        for name, value in node.attrs.items():
            fields.add("attr", Message([("name", name), ("value", self._attr(name, value))]))
        return fields

    def _attr(self, name, value):
        if name == "to" and not isinstance(value, str):  # dimensions, not an element type
            return Message([("s", ", ".join(self._dim(dim) for dim in value))])
        if isinstance(value, bool):
            return Message([("b", value)])
        if isinstance(value, int):
            return Message([("i", value)])
        if isinstance(value, float):
            return Message([("f", value)])
        if isinstance(value, str):
            return Message([("s", value)])
        return Message([("ints", Message([("values", [int(item) for item in value])]))])

    def _function(self, function):
        message = Message([("name", function.name)])
        self._declarations(message, function)
        for fields in self._nodes(function.nodes, function.names).values():
            message.add("node", fields)
        for value in function.outputs:
            message.add("output", function.names[value])
        return message

    def _main(self):
        main = self._model.main
        message = Message([("name", "main")])
        self._declarations(message, main)
        nodes = self._nodes([item for item in self._model.body if not isinstance(item, Call)], main.names)
        for item in self._model.body:
            if item in nodes:
                message.add("node", nodes[item])
            if not isinstance(item, Call):
                continue
            message.add("node", Message([
                ("name", item.name), ("op", "call"), ("function", item.function.name),
                ("input", [main.names[value] for value in item.inputs]),
                ("output", [main.names[value] for value in item.outputs])]))
        message.add("output", "loss")
        return message
