"""weir.from_torch: makes the graph of a job of a module of PyTorch, with the weights of the module."""

import math
import warnings

import torch

from weir import capture, functions, rewrite, safetensors_file
from weir.dims import Dim, sizes
from weir.errors import Error
from weir.graph import Cut, Parameter
from weir.inputs import declared_inputs
from weir.textproto import to_text
from weir.translate import Translator
from weir.views import View
from weir.weight_map import map_text


class TorchGraph:
    """A TorchGraph is a model in Weir's form: the text of the graph, the weights, and the way back to the module.

    text      the message `graph` of a job, with the names of its dimensions
    dims      a table of the dimensions with their names, for people; empty if the dimensions were not named
    warnings  what differs from PyTorch, sentence by sentence
    """

    def __init__(self, model, text, weights, stored, aliases, buffers, notes):
        self.model = model
        self.text = text
        self.dims = ""
        self.warnings = notes
        self._weights = weights  # {name in Weir: Parameter}
        self._stored = stored  # {name in the state_dict: tensor}
        self._aliases = aliases  # {further name of a tied tensor: its first name}
        self._buffers = buffers

    def weight(self, name):
        """Returns a weight by its name in Weir's files, in f32, with the value that the module has now."""
        return _value_of(self._weights[name], self._stored).detach().to("cpu", torch.float32).contiguous()

    def write_weights(self, path):
        """Writes all weights as safetensors, for `weir train --init`."""

        def data_of(name):
            return lambda: self.weight(name).numpy().tobytes()

        safetensors_file.write(path, {name: ("F32", sizes(parameter.dims), data_of(name))
                                      for name, parameter in self._weights.items()})

    def weight_map(self):
        """Returns the map from a file of the state_dict to weights, for `--init` (docs/reference/weight_maps.md)."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self._stored.items()}
        return map_text(self.model, self._weights, shapes, self._aliases, self._buffers)

    def state_dict(self, path):
        """Returns the state_dict of the module with the weights of a file that `weir train --save` wrote."""
        read = safetensors_file.read(path)
        missing = [name for name in self._weights if name not in read]
        if missing:
            raise Error(f"{path}: expected all weights of the model; found none called {', '.join(missing[:5])}"
                        + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""))
        adapters = [name for name in read if name.endswith(".lora_a") and name not in self._weights]
        if adapters:
            raise Error(f"{path}: expected weights without adapters; found {adapters[0]}. Try: "
                        "g.state_dict(job.merge()), which adds the adapters to the weights")
        state = {name: tensor.detach().clone() for name, tensor in self._stored.items()}
        for name, parameter in self._weights.items():
            if parameter.cut is None:
                continue
            dtype, shape, data = read[name]
            if dtype != "F32" or math.prod(shape) != math.prod(sizes(parameter.dims)):
                raise Error(f"{path}: expected {name} as F32 {list(sizes(parameter.dims))}; found {dtype} "
                            f"{list(shape)}")
            values = torch.frombuffer(bytearray(data), dtype=torch.float32)
            _part(state[parameter.cut.source], parameter.cut).copy_(
                values.reshape(_part(state[parameter.cut.source], parameter.cut).shape))
        for alias, name in self._aliases.items():
            state[alias] = state[name]
        state.update(self._buffers)
        return state


def _part(tensor, cut):
    """Returns the part of a stored tensor that a cut names, as a view."""
    seen = tensor.view(cut.shape)
    return seen if cut.is_whole() else seen.narrow(cut.axis, cut.begin, cut.size)


def _value_of(parameter, stored):
    if parameter.cut is None:
        return parameter.constant.reshape(sizes(parameter.dims))
    return _part(stored[parameter.cut.source].contiguous(), parameter.cut).reshape(sizes(parameter.dims))


def _example(value, device):
    if value.dtype == "bool":
        return torch.ones(sizes(value.dims), dtype=torch.bool, device=device)
    dtype = torch.long if value.dtype == "i32" else torch.float32
    return torch.zeros(sizes(value.dims), dtype=dtype, device=device)


def _device_of(model):
    """Returns the device of the module's tensors, which must have values."""
    devices = {tensor.device for tensor in [*model.parameters(), *model.buffers()]} or {torch.device("cpu")}
    if len(devices) > 1 or next(iter(devices)).type == "meta":
        raise Error(f"expected a module on one device, with values; found {', '.join(sorted(map(str, devices)))}. "
                    f"Try: load the weights, and model.cpu()")
    return devices.pop()


def _check_module(model):
    """Refuses what is no module, and a module that wraps the one that is meant."""
    if not isinstance(model, torch.nn.Module):
        found = f"the class {model.__name__}. Try: {model.__name__}(...)" if isinstance(model, type) else \
            f"{type(model).__name__} {getattr(model, '__name__', '')}".strip() \
            + ". Try: a class of torch.nn.Module whose forward calls the function and whose parameters are trained"
        raise Error(f"model: expected a module of PyTorch (torch.nn.Module); found {found}")
    if hasattr(model, "_orig_mod"):
        raise Error("model: expected the module itself; found a module of torch.compile. Try: model._orig_mod")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise Error(f"model: expected the module itself; found {type(model).__name__}. Try: model.module")


def _exported(model, declared, given, loss):
    """Returns the exported program. Inputs that the model uses as indices become integers.

    `given` holds what the user wrote for each input. An input whose type the user stated keeps its type, and an Error
    names the type that the model takes.
    """
    device = _device_of(model)

    def attempt():
        return capture.export(model, [_example(value, device) for value in declared],
                              [value.name for value in declared], loss)

    try:
        return attempt()
    except capture.RealIndices as error:
        first = error
    reals = [value for value in declared if value.dtype == "f32"]
    for trial in [[value] for value in reals] + ([reals] if len(reals) > 1 else []):
        for value in trial:
            value.dtype = "i32"
        try:
            program = attempt()
        except capture.RealIndices as error:
            first = error
        except Error:
            if len(reals) == 1 and not isinstance(given[reals[0].name], str):
                raise  # with integers, something else is wrong
        else:
            _say_integers(trial, given)
            return program
        for value in trial:
            value.dtype = "f32"
    if len(reals) == 1 and isinstance(given[reals[0].name], str):
        _say_integers(reals, given)
    raise first


def _say_integers(values, given):
    for value in values:
        stated = isinstance(given[value.name], str)
        items = given[value.name].partition("[")[2].rstrip("] ") if stated else ", ".join(given[value.name])
        advice = f"{value.name}=\"i32[{items}]\""
        if stated:
            raise Error(f"input {value.name} is f32 but the model uses it as indices. Try: {advice}")
        warnings.warn(f"the model uses the input {value.name} as indices, so the input is i32. {advice} says so",
                      stacklevel=5)


def _block_paths(model):
    """Returns {path of a repeated module: its class}: numbered children of a list that have children of their own."""
    paths = {}
    for path, module in model.named_modules():
        children = [(name, child) for name, child in module.named_children() if name.isdigit()]
        if len(children) < 2 or any(not list(child.children()) for _, child in children):
            continue
        for name, child in children:
            paths[f"{path}.{name}" if path else name] = type(child).__name__
    return paths


def _default_decay(name, tensor):
    """Weight decay applies to matrices, as in most recipes of AdamW."""
    return tensor.dim() >= 2


def from_torch(model, *, loss=None, ignore_index=None, decay=None, name=None, name_dims=True, **inputs):
    """Returns the TorchGraph of a module.

    Each input of the job is a keyword: `tokens=("batch", "sequence")` names its dimensions, and `batch=8, sequence=64`
    gives their sizes. `images="f32[batch, channels=3, height=32, width=32]"` also says the element type; without a
    type, `tokens`, `targets`, `labels` and names that end in "ids" are integers, names that end in "mask" are masks
    (bool), and others are real. An input whose name is a parameter of the module's `forward` is passed by this name,
    and others in order. `targets` belongs to the loss.

    loss       None: the scalar that the model returns, or else cross entropy with `targets`; "cross_entropy"; "mse";
               or a function of the model's output and the targets that returns a scalar
    ignore_index  the value of the targets that do not count, such as -100: the cross entropy is the mean over the
               others. None: all targets count, unless the model or the loss names another value than PyTorch's
               default, -100
    decay      a function of a parameter's name and tensor that says whether weight decay applies; None: matrices decay
    name       the name of the model; None: the name of its class
    name_dims  False leaves the dimensions with provisional names, for trials without the program `weir`
    """
    _check_module(model)
    declared = declared_inputs(inputs)
    program = _exported(model, declared, inputs, loss)
    stored, aliases, canonical = _stored_tensors(model)
    translator = Translator(_real_dtype(model), ignore_index)
    translator.graph.inputs = declared
    parameters = {}
    arguments = []
    free_inputs = iter(declared)
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            arguments.append(View.of(next(free_inputs)))
        elif kind == "PARAMETER":
            path = canonical[spec.target.removeprefix("_model.")]
            if path not in parameters:
                parameters[path] = _parameter(path, stored[path], decay or _default_decay)
                translator.graph.parameters.append(parameters[path])
            arguments.append(View.of(parameters[path]))
        elif kind == "BUFFER" and spec.persistent:
            arguments.append(translator.buffer(program.state_dict[spec.target], spec.target.removeprefix("_model.")))
        else:
            arguments.append(translator.buffer(program.constants[spec.target]))
    outputs = translator.run(program.graph_module, arguments)
    translator.check("Try: targets= in place of labels=, so that Weir computes the loss and not the model"
                     if "labels" in inputs and "targets" not in inputs else "")
    if ignore_index is not None and ignore_index not in translator.ignored:
        raise Error(f"ignore_index={ignore_index}: expected a cross entropy, whose targets may be ignored; found a "
                    "loss without one")
    result = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    if not isinstance(result, View) or result.value.dims:
        raise Error("expected a loss that is one number computed from the inputs; "
                    f"found {list(result.torch_shape) if isinstance(result, View) else 'a constant'}")
    graph = translator.graph
    graph.loss = result.value
    rewrite.simplify(graph, translator.make_constant)
    graph.inputs = [value for value in graph.inputs if any(value in node.inputs for node in graph.nodes)]
    blocks = _block_paths(model)
    cut = functions.cut_into_functions(graph, list(blocks), blocks)
    text = to_text(functions.GraphPrinter(cut, name or type(model).__name__).message())
    for warning in translator.warnings:
        warnings.warn(warning, stacklevel=3)
    of_buffers = dict(model.named_buffers(remove_duplicate=False))
    read = {parameter.cut.source for parameter in cut.weights.values() if parameter.cut is not None}
    stored.update({path: of_buffers[path] for path in translator.averages if path in read})
    buffers = {key: tensor for key, tensor in model.state_dict().items() if key not in stored and key not in aliases}
    made = TorchGraph(name or type(model).__name__, text, cut.weights, stored, aliases, buffers, translator.warnings)
    if name_dims:
        from weir.program import name_dimensions
        made.text, made.dims = name_dimensions(made.text)
    return made


def _stored_tensors(model):
    """Returns ({first name: tensor}, {further name of a tied tensor: first name}, {every name: first name})."""
    first, stored, aliases, canonical = {}, {}, {}, {}
    for path, tensor in model.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(tensor), path)
        canonical[path] = known
        if known == path:
            stored[path] = tensor
        else:
            aliases[path] = known
    return stored, aliases, canonical


def _real_dtype(model):
    return next((tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()), torch.float32)


def _parameter(path, tensor, decay):
    if tensor.dtype not in (torch.float32, torch.float64):
        raise Error(f"parameter {path}: expected f32; found {tensor.dtype}. Try: model.float(), and "
                    f"weir.job(..., precision=\"bf16\") to compute in bf16")
    return Parameter(tuple(Dim(size) for size in tensor.shape), "f32", path, cut=Cut(path, tuple(tensor.shape)),
                     decay=bool(decay(path, tensor)), frozen=not tensor.requires_grad)
