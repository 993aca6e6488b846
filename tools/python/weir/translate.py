"""Translates an exported program of PyTorch, operation by operation, to a graph of Weir.

A tensor is either folded (a tensor of PyTorch that depends on constants alone) or a View of a value. Everything that
cannot be translated is collected, so that one error names all of it.
"""

import operator

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from weir.aten_operations import HINTS, AtenOperations
from weir.dims import Dim, sizes
from weir.errors import Error, Unsupported
from weir.exported_nodes import describe_op, module_path, source_line
from weir.graph import Cut, Graph, Parameter, Value, make_node
from weir.operands import Folded
from weir.views import Refused, View, ViewOperations

# The operations of PyTorch that map each element of one tensor, under the name that Weir has for them.
UNARY = {
    "relu": "relu", "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh", "erf": "erf", "exp": "exp", "expm1": "expm1",
    "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "reciprocal": "reciprocal", "square": "square", "abs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil",
    "round": "round",
}
SAME = ("contiguous", "clone", "alias", "lift_fresh_copy", "positive")  # the same elements
OF_SHAPE = ("new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "full_like")  # constants like a tensor
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range",
          "sym_constrain_range_for_size")  # nothing remains of them


class Translator(AtenOperations):
    """Makes a Graph of an exported program. `run` walks the program, and `graph` holds what it made."""

    def __init__(self, model_dtype, ignore_index=None):
        self.graph = Graph()
        self.missing = []
        self.warnings = []
        self._model_dtype = model_dtype
        self._ignore_index = ignore_index  # of the user, or None
        self.ignored = set()  # what the cross entropies of the model ignore; None: nothing
        self._constants = {}
        self._copies = {}  # value with repeated heads -> the view that repeats them
        self._buffers = set()  # the memory of folded buffers
        self._paths = {}  # id of the value of a buffer -> (path in the state_dict, the value)
        self.averages = []  # paths of the buffers that training updates
        self._node = None
        self._views = ViewOperations(self._emit)

    def buffer(self, tensor, path=None):
        """Returns the value of a buffer of the module: a copy, because the program may change what it folds.

        A buffer with a `path` in the state_dict may become a moving average.
        """
        copy = tensor.detach().clone()
        self._buffers.add(copy.untyped_storage().data_ptr())
        folded = Folded(copy)
        if path is not None and tensor.dtype == torch.float32:
            self._paths[id(folded)] = (path, folded)
        return folded

    def average(self, item):
        """Returns the parameter for a buffer that training updates; None if `item` is none, or was asked for before."""
        path, folded = self._paths.pop(id(item), (None, None))
        if folded is not item:
            return None
        shape = tuple(item.tensor.shape)
        parameter = Parameter(tuple(Dim(size) for size in shape), "f32", path, cut=Cut(path, shape))
        self.graph.parameters.append(parameter)
        self.averages.append(path)
        return parameter

    # ---- the walk over the program

    def run(self, module, arguments):
        """Translates a graph module whose placeholders have the values `arguments`, and returns its outputs."""
        env, outputs = {}, []
        placeholders = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(placeholders)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node.target)
            elif node.op == "output":
                outputs = self._read(env, node.args[0])
            else:
                outer, self._node = self._node, node
                env[node] = self._call(node, env)
                self._node = outer
        return outputs

    def _attribute(self, module, path):
        target = module
        for name in path.split("."):
            target = getattr(target, name)
        return self.buffer(target) if isinstance(target, torch.Tensor) else target

    def _read(self, env, argument):
        if isinstance(argument, torch.fx.Node):
            return env[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._read(env, item) for item in argument)
        if isinstance(argument, dict):
            return {name: self._read(env, item) for name, item in argument.items()}
        return argument

    def _call(self, node, env):
        args, kwargs = self._read(env, node.args), self._read(env, node.kwargs)
        leaves = _leaves([args, kwargs])
        if node.target is operator.getitem:
            return args[0][args[1]]
        name = describe_op(node)
        try:
            if name.startswith("wrap_with_") or name == "invoke_subgraph":
                return self._region(name, args)
            short = name.removeprefix("aten.")
            if short in CHECKS:
                return None
            if short in OF_SHAPE:
                like = node.args[0].meta["val"]
                args = (Folded(torch.empty(like.shape, dtype=like.dtype)), *args[1:])
                leaves = _leaves([args, kwargs])
            if not any(isinstance(leaf, View) for leaf in leaves):
                return self._fold(node, args, kwargs)
            if short.endswith("_") and not short.startswith("_"):
                self._check_in_place(node)
                result = env[node.args[0]] = self._translate(short[:-1], node, args, kwargs)
            else:
                result = self._translate(short, node, args, kwargs)
            self._check_shape(node, result)
            return result
        except Refused as refused:
            self._refuse(node, name, str(refused))
            return _mapped(_stand_in, node.meta.get("val"))
        except GuardOnDataDependentSymNode:
            raise Error(f"expected sizes that do not depend on the values of tensors; found {name} in "
                        f"{module_path(node) or 'the model itself'}, {source_line(node)}\n"
                        "  The model must not choose its operations by the values of tensors.") from None

    def _refuse(self, node, name, hint):
        entry = {"op": name, "module": module_path(node), "line": source_line(node), "hint": hint}
        if entry not in self.missing:
            self.missing.append(entry)

    def _region(self, name, args):
        """Walks into a region, such as the body of torch.no_grad."""
        position = next(i for i, item in enumerate(args) if isinstance(item, torch.nn.Module))
        outputs = self.run(args[position], args[position + 1:])
        if "autocast" in name and args[position - 2] is True:
            raise Refused("the precision of a job is training.precision; leave torch.autocast out of the model")
        if "set_grad" in name and args[0] is False and any(isinstance(leaf, View) for leaf in _leaves(outputs)):
            raise Refused(HINTS["detach"])
        return outputs

    def _fold(self, node, args, kwargs):
        """Computes a node with PyTorch, because it depends on constants alone."""
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Refused("Weir draws random numbers only in dropout")
        if describe_op(node) == "aten.detach_":
            return args[0]  # a constant has no gradient
        changes = getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        source = node.args[0] if changes else None
        if changes and source.op in ("placeholder", "get_attr") and list(source.users) == [node] and not node.users:
            return args[0]  # nothing reads it: the counter of batches of a batch normalisation
        if changes and args[0].tensor.untyped_storage().data_ptr() in self._buffers:
            raise Refused("the model changes one of its buffers, and Weir's steps all see the first value")
        unwrap = lambda item: item.tensor if isinstance(item, Folded) else item  # noqa: E731
        with torch.no_grad():
            result = node.target(*_mapped(unwrap, args), **_mapped(unwrap, kwargs))
        return _mapped(lambda item: Folded(item) if isinstance(item, torch.Tensor) else item, result)

    @staticmethod
    def _check_in_place(node):
        """Refuses a change in place of a tensor that others see under other shapes."""
        source = node.args[0]
        makers = [source, *(user for user in source.users if user is not node)]
        if source.op != "call_function" or any(_makes_views(maker) for maker in makers):
            raise Refused("the model changes a tensor in place; write the operation without the trailing underscore")

    def _check_shape(self, node, result):
        """Ends with a bug report if the translation has other sizes than PyTorch."""
        expected = node.meta.get("val")
        pairs = zip(result, expected) if isinstance(result, (list, tuple)) else [(result, expected)]
        for ours, theirs in pairs:
            if isinstance(ours, View) and theirs is not None and ours.torch_shape != tuple(theirs.shape):
                raise AssertionError(f"{describe_op(node)} has shape {tuple(theirs.shape)} in PyTorch, and the "
                                     f"translation has {ours.torch_shape}: this is a bug of the package weir")

    def _translate(self, short, node, args, kwargs):
        if short in SAME:
            return args[0]
        if short in UNARY:
            return self._unary(UNARY[short], args[0])
        handler = getattr(self, "op_" + short, None)
        if handler is None:
            raise Refused(HINTS.get(short, "Weir has no such operation, or the package does not know it yet"))
        defaults = {argument.name: argument.default_value for argument in node.target._schema.arguments
                    if argument.has_default_value()}
        names = [argument.name for argument in node.target._schema.arguments]
        given = {**defaults, **dict(zip(names, args)), **kwargs}
        return handler(node, given)

    # ---- building

    def _emit(self, op, inputs, attrs=None):
        module, line = (module_path(self._node), source_line(self._node)) if self._node is not None else ("", "")
        if op == "reshape":  # of a reshape: the same elements in the same order
            while inputs[0].producer is not None and inputs[0].producer.op == "reshape":
                inputs = inputs[0].producer.inputs
            if sizes(inputs[0].dims) == sizes(attrs["to"]):
                return inputs[0]
        node = make_node(op, inputs, attrs or {}, module, line)
        self.graph.nodes.append(node)
        return node.output

    def constant(self, tensor):
        """Returns the frozen parameter that holds a folded tensor."""
        tensor = tensor.detach().to("cpu", torch.float32, copy=True).contiguous()
        key = (tuple(tensor.shape), tensor.numpy().tobytes() if tensor.numel() else b"")
        if key not in self._constants:
            dims = tuple(Dim(size) for size in tensor.shape) or (Dim(1),)
            parameter = Parameter(dims, "f32", f"constants.{len(self._constants)}", constant=tensor, frozen=True)
            self.graph.parameters.append(parameter)
            self._constants[key] = parameter
        return self._constants[key]

    def make_constant(self, values, shape):
        parameter = self.constant(torch.tensor(values, dtype=torch.float32).reshape(shape))
        if parameter not in self.graph.parameters:
            self.graph.parameters.append(parameter)
        return parameter

    def _view(self, item):
        """Returns a view of a tensor, whether the tensor is folded or not."""
        if isinstance(item, Folded):
            return View.of(self.constant(item.tensor))
        return item

    def _value(self, item):
        return self._views.settle(self._view(item))

    def _unary(self, op, x, attrs=None):
        x = self._real(x)
        return x.with_value(self._emit(op, [x.value], attrs))

    def _real(self, x):
        if x.value.dtype == "i32":
            raise Refused("Weir computes with real numbers only; integers are indices. Try: tensor.float()")
        if x.value.dtype == "bool":
            return x.with_value(self._emit("cast", [x.value], {"to": "f32"}))
        return x

    def check(self, advice=""):
        """Raises an error that lists everything without a translation, and ends with a sentence of advice."""
        if self.missing:
            raise Unsupported(self.missing, advice)


def _makes_views(node):
    """Returns whether the result of a node shares its memory with an operand."""
    returns = getattr(getattr(node.target, "_schema", None), "returns", [])
    return any(result.alias_info is not None for result in returns)


def _stand_in(example):
    """Returns a view in the place of what could not be translated, so that the walk finds what else is missing."""
    if not isinstance(example, torch.Tensor):
        return example
    return View.of(Value(tuple(Dim(size) for size in example.shape), "unknown"))


def _leaves(item):
    if isinstance(item, (list, tuple)):
        return [leaf for part in item for leaf in _leaves(part)]
    if isinstance(item, dict):
        return [leaf for part in item.values() for leaf in _leaves(part)]
    return [item]


def _mapped(function, item):
    if isinstance(item, (list, tuple)):
        return type(item)(_mapped(function, part) for part in item)
    if isinstance(item, dict):
        return {name: _mapped(function, part) for name, part in item.items()}
    return function(item)
