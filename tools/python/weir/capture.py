"""Exports a module of PyTorch with its loss, by torch.export.

Models of the library transformers are exported with an attention of our own, through the library's public registries:
one scaled_dot_product_attention, whose mask is a tensor that the translator examines.
"""

import contextlib
import inspect

import torch
import torch.nn.functional as F

from weir.errors import Error
from weir.torch_version import check_version, numbers_of

_ATTENTION = "weir_capture"


class _WithLoss(torch.nn.Module):
    """The user's model followed by its loss. `bind` turns the inputs, in order, into the model's arguments."""

    def __init__(self, model, bind, loss, targets):
        super().__init__()
        self._model = model
        self._bind = bind
        self._loss = loss
        self._targets = targets

    def forward(self, *inputs):
        args, kwargs = self._bind(inputs)
        output = self._model(*args, **kwargs)
        targets = None if self._targets is None else inputs[self._targets]
        return loss_of(output, targets, self._loss)


def loss_of(output, targets, loss):
    """Returns the scalar loss of what a model returned."""
    own = _own_loss(output)
    if callable(loss):
        return loss(_main_output(output), targets)
    if own is not None and loss is None:
        return own
    if targets is None:
        raise Error("expected a model that returns a scalar, or an input called `targets`; found neither. "
                    "Try: targets=(\"batch\", \"sequence\"), or loss=a function of the model's output and the targets")
    result = _main_output(output)
    if loss == "mse":
        return F.mse_loss(result, targets)
    if loss in (None, "cross_entropy"):
        return F.cross_entropy(result.flatten(0, -2), targets.flatten())
    raise Error(f"expected loss to be None, \"cross_entropy\", \"mse\" or a function; found {loss!r}")


def _own_loss(output):
    loss = getattr(output, "loss", None)
    candidates = [loss] if loss is not None else list(output) if isinstance(output, (tuple, list)) else [output]
    scalars = [item for item in candidates if isinstance(item, torch.Tensor) and item.dim() == 0]
    return scalars[0] if scalars else None


def _main_output(output):
    if isinstance(output, torch.Tensor):
        return output
    if getattr(output, "logits", None) is not None:
        return output.logits
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], torch.Tensor):
        return output[0]
    raise Error("expected a model that returns a tensor, a tuple that begins with one, or an object with `logits`; "
                f"found {type(output).__name__}. Try: loss=a function of the model's output and the targets")


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
            if not free:
                raise Error(f"expected an input of the model for \"{name}\"; found that forward takes "
                            f"{', '.join(parameters) or 'nothing'}")
            given[free.pop(0)] = place
    targets = names.index("targets") if has_targets else None

    def bind(inputs):
        return (), {name: inputs[place] for name, place in given.items()}

    return bind, targets


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """The attention of transformers' registry: shared heads are not repeated, and the mask is a tensor."""
    result = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, dropout_p=dropout,
                                            scale=scaling, enable_gqa=key.shape[1] != query.shape[1])
    return result.transpose(1, 2).contiguous(), None


def _multihead_attention(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                         average_attn_weights=True, is_causal=False):
    """The forward of nn.MultiheadAttention for self-attention, without the moves of PyTorch's own."""
    del need_weights, average_attn_weights  # nothing that trains reads the weights of attention
    if not (query is key is value and self.in_proj_weight is not None and query.dim() == 3 and key_padding_mask is None
            and self.bias_k is None and not self.add_zero_attn):
        return _TORCH_FORWARD(self, query, key, value, key_padding_mask=key_padding_mask, need_weights=False,
                              attn_mask=attn_mask, is_causal=is_causal)
    x = query if self.batch_first else query.transpose(0, 1)
    q, k, v = (part.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
               for part in F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask  # nn.MultiheadAttention marks what is hidden, and the function marks what is seen
    dropout = self.dropout if self.training else 0.0
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout)
    result = self.out_proj(result.transpose(1, 2).flatten(2))
    return (result if self.batch_first else result.transpose(0, 1)), None


_TORCH_FORWARD = torch.nn.MultiheadAttention.forward


@contextlib.contextmanager
def torch_hooks():
    """While the context lasts, nn.MultiheadAttention computes self-attention in the order that Weir has."""
    torch.nn.MultiheadAttention.forward = _multihead_attention
    try:
        yield
    finally:
        torch.nn.MultiheadAttention.forward = _TORCH_FORWARD


@contextlib.contextmanager
def transformers_hooks(model):
    """While the context lasts, a model of transformers uses the attention above and keeps no cache."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "set_attn_implementation"):
        yield
        return
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def mask(*args, **kwargs):
        return sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})

    AttentionInterface.register(_ATTENTION, _attention)
    AttentionMaskInterface.register(_ATTENTION, mask)
    before = config._attn_implementation, getattr(config, "use_cache", None)
    model.set_attn_implementation(_ATTENTION)
    if before[1] is not None:
        config.use_cache = False
    try:
        yield
    finally:
        model.set_attn_implementation(before[0] or "eager")
        if before[1] is not None:
            config.use_cache = before[1]


def export(model, examples, names, loss):
    """Returns the exported program of the model with its loss. `examples` are tensors, and `names` their names."""
    check_version(torch.__version__)
    bind, targets = bind_inputs(model, names, "targets" in names)
    whole = _WithLoss(model, bind, loss, targets)
    whole.train(model.training)
    with transformers_hooks(model), torch_hooks():
        try:
            return _export(whole, examples, strict=False)
        except Error:
            raise
        except Exception as error:  # noqa: BLE001  (the other kind of export may take what this kind refuses)
            first = error
        try:
            return _export(whole, examples, strict=True)
        except Exception:  # noqa: BLE001  (the first error is the one that names the user's line)
            raise Error(f"torch.export cannot capture the model: {type(first).__name__}: {first}\n"
                        f"  The model must not choose its operations by the values of tensors.") from first


def _export(module, examples, strict):
    # From PyTorch 2.6 on, torch.export.export itself keeps the operations of training.
    old = numbers_of(torch.__version__) < (2, 6)
    function = torch.export.export_for_training if old else torch.export.export
    return function(module, tuple(examples), strict=strict)
