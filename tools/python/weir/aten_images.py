"""How operations on images become operations of Weir: convolutions, pooling, norms over channels, resizing, padding."""

import math

import torch

from weir.dims import Dim, sizes
from weir.exported_nodes import module_path
from weir.graph import Parameter
from weir.operands import Folded, number_of, shape_of
from weir.views import Refused, View, permuted

_MEAN_POOL = "Weir has adaptive average pooling if the output size divides the input size"


def _per_dim(value, rank, fallback=()):
    """Returns a list with one number per spatial dimension of a number or a list, which may be empty."""
    values = [value] if isinstance(value, int) else list(value) or list(fallback)
    return values * rank if len(values) == 1 else values


class ImageOperations:
    """The translations of operations on images, a part of AtenOperations."""

    # ---- convolutions

    def op_conv2d(self, node, given):
        patches = self._patches(given)
        return self._conv(node, given) if patches is None else patches

    def _conv(self, node, given):
        x, weight = self._real(self._view(given["input"])), given["weight"]
        rank = len(shape_of(weight)) - 2
        dilation = _per_dim(given["dilation"], rank)
        stride = _per_dim(given["stride"], rank)
        extents = [d * (n - 1) for d, n in zip(dilation, shape_of(weight)[2:])]
        padding = given["padding"]
        if padding == "same":
            if any(extent % 2 for extent in extents):
                raise Refused("Weir pads both sides alike: padding=\"same\" needs a kernel of odd size; nn.ZeroPad2d "
                              "before the convolution is possible")
            padding = [extent // 2 for extent in extents]
        padding = [0] * rank if padding == "valid" else _per_dim(padding, rank)
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": given["groups"]}
        return self._windows("conv", node, x, weight, given["bias"], attrs)

    op_conv1d = op_conv3d = _conv

    def _conv_transpose(self, node, given):
        rank = len(shape_of(given["weight"])) - 2
        attrs = {name: _per_dim(given[name], rank) for name in ("stride", "padding", "dilation", "output_padding")}
        attrs["groups"] = given["groups"]
        if any(more >= step for more, step in zip(attrs["output_padding"], attrs["stride"])):
            raise Refused("Weir has transposed convolutions whose output_padding is below the stride")
        return self._windows("conv_transpose", node, self._real(self._view(given["input"])), given["weight"],
                             given["bias"], attrs)

    op_conv_transpose1d = op_conv_transpose2d = op_conv_transpose3d = _conv_transpose

    def _windows(self, op, node, x, weight, bias, attrs):
        if len(x.torch_shape) != len(shape_of(weight)):
            raise Refused("Weir has convolutions of batches: the input has a batch dimension")
        if attrs["groups"] == 1:
            del attrs["groups"]
        if all(step == 1 for step in attrs["stride"]):
            del attrs["stride"]
        inputs = [self._views.settle(x), self._value(weight)] + ([self._value(bias)] if bias is not None else [])
        return self._with_sizes(op, node, inputs, attrs)

    def _with_sizes(self, op, node, inputs, attrs):
        """Emits an operation on windows. Its dimensions, but the batch, are new ones with PyTorch's sizes."""
        for name, plain in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if all(number == plain for number in attrs.get(name, [])):
                attrs.pop(name, None)
        shape = node.meta["val"].shape
        to = (inputs[0].dims[0],) + tuple(Dim(size) for size in shape[1:])
        return View.of(self._emit(op, inputs, {**attrs, "to": to}))

    def _patches(self, given):
        """Returns a convolution by patches that do not overlap as a product over patches, or None for another one.

        The product keeps the channels last, as the layers behind an image's patches want them.
        """
        weight, shape = given["weight"], shape_of(given["weight"])
        parameter = self._view(weight).value
        out, channels, high, wide = shape
        if (given["groups"] != 1 or list(given["stride"]) != [high, wide] or any(n != 1 for n in given["dilation"])
                or given["padding"] not in ("valid", [0, 0], [0]) or high * wide == 1
                or not isinstance(parameter, Parameter) or parameter.cut is None or not parameter.cut.is_whole()):
            return None
        x = self._view(given["input"])
        batch, _, rows, columns = x.torch_shape
        if rows % high or columns % wide:
            return None
        patches = self._views.reshape(x, (batch, channels, rows // high, high, columns // wide, wide))
        patches = permuted(patches, (0, 2, 4, 1, 3, 5))
        patches = self._views.reshape(patches, (batch, rows // high, columns // wide, channels * high * wide))
        if len(parameter.dims) != 2:  # the parameter becomes [out, the rest]
            parameter.dims = (parameter.dims[0], Dim(math.prod(sizes(parameter.dims[1:]))))
        return permuted(self._product(patches, View.of(parameter), given["bias"], True), (0, 3, 1, 2))

    # ---- pooling

    def _pool(self, op, node, given, names):
        x = self._real(self._view(given["self"]))
        rank = int(node.target._schema.name[-2])
        if len(x.torch_shape) != rank + 2:
            raise Refused("Weir has pooling of batches: the input has a batch dimension")
        kernel = _per_dim(given["kernel_size"], rank)
        attrs = {"kernel": kernel, "stride": _per_dim(given["stride"], rank, kernel)}
        for name in names:
            attrs[name] = _per_dim(given[name], rank)
        if given["ceil_mode"]:
            attrs["ceil"] = True
        if given.get("divisor_override") is not None:
            raise Refused("Weir has average pooling without divisor_override")
        if op == "average_pool" and not given["count_include_pad"]:
            attrs["count_padding"] = False
        return self._with_sizes(op, node, [self._views.settle(x)], attrs)

    def _max_pool(self, node, given):
        return self._pool("max_pool", node, given, ("padding", "dilation"))

    op_max_pool1d = op_max_pool2d = op_max_pool3d = _max_pool

    def _average_pool(self, node, given):
        return self._pool("average_pool", node, given, ("padding",))

    op_avg_pool1d = op_avg_pool2d = op_avg_pool3d = _average_pool

    def _adaptive_average_pool(self, node, given):
        x = self._real(self._view(given["self"]))
        rank = int(node.target._schema.name[-2])
        before, after = x.torch_shape[-rank:], node.meta["val"].shape[-rank:]
        if all(size == 1 for size in after):
            return self._reduce("reduce_mean", node, {"self": x, "dim": list(range(-rank, 0)), "keepdim": True})
        if any(n % m for n, m in zip(before, after)):
            raise Refused(_MEAN_POOL)
        kernel = [n // m for n, m in zip(before, after)]
        return self._with_sizes("average_pool", node, [self._views.settle(x)], {"kernel": kernel, "stride": kernel})

    op_adaptive_avg_pool1d = op_adaptive_avg_pool2d = op_adaptive_avg_pool3d = _adaptive_average_pool

    # ---- norms over channels

    def op_batch_norm(self, node, given):
        x = self._views.settle(self._real(self._view(given["input"])))
        axes = [d for d in range(len(x.dims)) if d != 1]
        training = given["training"] or given["running_mean"] is None
        if not training:
            statistics = [self._value(given["running_mean"]), self._value(given["running_var"])]
        elif given["running_mean"] is None:
            statistics = self._statistics(x, axes)
        else:
            statistics = self._running_statistics(x, axes, given, module_path(node))
        return View.of(self._normalize(x, statistics, axes, given))

    def _running_statistics(self, x, axes, given, path):
        momentum = given.get("momentum", given.get("exponential_average_factor"))
        known = isinstance(momentum, (int, float)) and 0 < momentum <= 1
        averages = [self.average(given[name]) for name in ("running_mean", "running_var")] if known else [None]
        if None in averages:
            self._warn_of_statistics(path)
            return self._statistics(x, axes)
        mean = self._emit("reduce_mean", [x], {"axes": axes, "out_dtype": "f32"})
        variance = self._emit("reduce_variance", [x, mean], {"axes": axes})
        unbiased = self._emit("unbiased_variance", [x, mean], {"axes": axes})
        attrs = {"momentum": float(momentum)}
        return [self._emit("moving_average", [mean, averages[0]], attrs),
                self._emit("moving_average", [variance, averages[1], unbiased], attrs)]

    def _warn_of_statistics(self, path):
        warning = ("batch normalisation: running_mean and running_var stay as they are in a module without momentum, "
                   "and follow the first run alone in one that runs several times in a step. Before model.eval(), let "
                   "PyTorch compute them: docs/how_to/bring_a_pytorch_model.md says how. The first such module is "
                   f"{path or 'the model itself'}")
        if not any(known.startswith("batch normalisation:") for known in self.warnings):
            self.warnings.append(warning)

    def _statistics(self, x, axes):
        mean = self._emit("reduce_mean", [x], {"axes": axes, "out_dtype": "f32"})
        return [mean, self._emit("reduce_variance", [x, mean], {"axes": axes})]

    def _normalize(self, x, statistics, axes, given):
        inputs = [x, *statistics]
        weight, bias = given.get("weight"), given.get("bias")
        if weight is None and bias is not None:
            weight = Folded(torch.ones(shape_of(bias)))
        inputs += [self._value(item) for item in (weight, bias) if item is not None]
        return self._emit("normalize", inputs, {"axes": axes, "epsilon": float(given["eps"])})

    def op_group_norm(self, node, given):
        x = self._views.plain(self._real(self._view(given["input"])))
        shape, groups = x.torch_shape, given["num_groups"]
        grouped = self._views.settle(
            self._views.reshape(x, (shape[0], groups, shape[1] // groups, *shape[2:])))
        axes = list(range(2, len(grouped.dims)))
        bare = self._emit("normalize", [grouped, *self._statistics(grouped, axes)],
                          {"axes": axes, "epsilon": float(given["eps"])})
        result = self._views.reshape(View.of(bare), shape)
        for op, name in (("mul", "weight"), ("add", "bias")):
            if given[name] is not None:
                beside = self._views.reshape(self._view(given[name]), (shape[1],) + (1,) * (len(shape) - 2))
                result = self._binary(op, result, beside)
        return result

    # ---- resizing and padding

    def _upsample(self, node, given):
        x = self._views.plain(self._real(self._view(given.get("input", given.get("self")))))
        before, after = x.torch_shape, tuple(node.meta["val"].shape)
        rank = len(before) - 2
        if any(n % m for n, m in zip(after, before)):
            raise Refused("Weir enlarges images by whole factors only")
        factors = [n // m for n, m in zip(after[2:], before[2:])]
        apart = before[:2] + tuple(size for n in before[2:] for size in (n, 1))
        value = self._views.settle(self._views.reshape(x, apart))
        ones = torch.ones([size for factor in factors for size in (factor, 1)][:2 * rank - 1])
        many = self._emit("mul", [value, self.constant(ones)])
        return self._views.reshape(View.of(many), after)

    op_upsample_nearest1d = op_upsample_nearest2d = op_upsample_nearest3d = _upsample

    def op_pad(self, node, given):
        x = self._views.plain(self._real(self._view(given["self"])))
        if given["mode"] != "constant" or number_of(given.get("value") or 0.0) != 0:
            raise Refused("Weir pads with zeros only")
        rank = len(x.perm)
        for i in range(len(given["pad"]) // 2):
            axis, (before, after) = rank - 1 - i, given["pad"][2 * i:2 * i + 2]
            x = self._views.slice(x, axis, max(0, -before), x.torch_shape[axis] + min(0, before) + min(0, after))
            before, after = max(0, before), max(0, after)
            if before or after:
                value = self._views.settle(x)
                size = value.dims[axis].size + before + after
                to = value.dims[:axis] + (Dim(size),) + value.dims[axis + 1:]
                x = View.of(self._emit("pad", [value], {"axis": axis, "begin": before, "size": size, "to": to}))
        return x

    op_constant_pad_nd = op_pad
