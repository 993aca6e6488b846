"""Exports a module of PyTorch with its loss, by torch.export.

Models of the library transformers are exported with an attention of our own, through the library's public registries:
one scaled_dot_product_attention, whose mask is a tensor that the translator examines.
"""

import contextlib
import io
import logging
import os
import sys
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch.nn.modules import transformer

from weir.errors import Error
from weir.inputs import bind_inputs
from weir.torch_version import check_version, numbers_of

_ATTENTION = "weir_capture"
# What PyTorch says of real numbers that a model uses as indices, and of a course that depends on values.
_INDEX_ERRORS = ("argument #1 'indices'", "tensors used as indices must be", "index_select(): Expected dtype int",
                 "gather(): Expected dtype int")
_DATA_DEPENDENT = ("data-dependent", "dynamic control flow")
_LINE_CHARACTERS, _CAUSE_LINES = 300, 6


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


def _attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, position_bias=None, softcap=None,
               s_aux=None, **_):
    """The attention of transformers' registry: shared heads are not repeated, and the mask is a tensor."""
    if s_aux is not None:
        raise Error("expected attention whose probabilities add up to 1; found a model with sinks of attention")
    if position_bias is not None:
        if attention_mask is None:
            attention_mask = position_bias
        elif attention_mask.dtype == torch.bool:
            attention_mask = torch.where(attention_mask, position_bias, -torch.inf)
        else:
            attention_mask = attention_mask + position_bias
    if softcap is not None:
        return _capped_attention(query, key, value, attention_mask, scaling, dropout, softcap), None
    result = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, dropout_p=dropout,
                                            scale=scaling, enable_gqa=key.shape[1] != query.shape[1])
    return result.transpose(1, 2).contiguous(), None


def _capped_attention(query, key, value, mask, scaling, dropout, softcap):
    """Attention whose scores stay between -softcap and softcap."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1]**-0.5 if scaling is None else scaling
    scores = softcap * torch.tanh(query @ key.transpose(-2, -1) * scale / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    probabilities = F.dropout(torch.softmax(scores, dim=-1), dropout)
    return (probabilities @ value).transpose(1, 2).contiguous()


def _multihead_attention(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                         average_attn_weights=True, is_causal=False):
    """The forward of nn.MultiheadAttention, without the moves of PyTorch's own."""
    del need_weights, average_attn_weights  # nothing that trains reads the weights of attention
    if query.dim() != 3 or self.bias_k is not None or self.add_zero_attn:
        return _TORCH_FORWARD(self, query, key, value, key_padding_mask=key_padding_mask, need_weights=False,
                              attn_mask=attn_mask, is_causal=is_causal)
    q, k, v = (part.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
               for part in _projected(self, query, key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask  # nn.MultiheadAttention marks what is hidden, and the function marks what is seen
    if attn_mask is not None and attn_mask.dim() == 3:  # batch and heads are one dimension
        attn_mask = attn_mask.unflatten(0, (-1, self.num_heads))
    dropout = self.dropout if self.training else 0.0
    mask = _with_padding(attn_mask, key_padding_mask)
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    result = self.out_proj(result.transpose(1, 2).flatten(2))
    return (result if self.batch_first else result.transpose(0, 1)), None


def _with_padding(mask, padding):
    """Returns the mask of attention with keys hidden that are padding [batch, keys]: marked, or with an addend."""
    if padding is None:
        return mask
    if padding.dtype != torch.bool:
        addend = padding[:, None, None, :]
        if mask is None:
            return addend
        return torch.where(mask, addend, -torch.inf) if mask.dtype == torch.bool else mask + addend
    seen = ~padding[:, None, None, :]
    if mask is None:
        return seen
    return mask & seen if mask.dtype == torch.bool else torch.where(seen, mask, -torch.inf)


def _projected(attention, query, key, value):
    """Returns q, k and v [batch, sequence, heads and their width] of an nn.MultiheadAttention."""
    x = [item if attention.batch_first else item.transpose(0, 1) for item in (query, key, value)]
    weights, bias = attention.in_proj_weight, attention.in_proj_bias
    if query is key is value and weights is not None:
        return F.linear(x[0], weights, bias).chunk(3, dim=-1)
    if weights is None:
        weights = attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight
    else:
        weights = weights.chunk(3)
    return [F.linear(*operands) for operands in zip(x, weights, (None,) * 3 if bias is None else bias.chunk(3))]


_TORCH_FORWARD = torch.nn.MultiheadAttention.forward


@contextlib.contextmanager
def torch_hooks():
    """While the context lasts, nn.MultiheadAttention computes attention in the order that Weir has.

    PyTorch's own encoders and decoders do not examine their masks by value then: the translator does.
    """
    detect = transformer._detect_is_causal_mask
    torch.nn.MultiheadAttention.forward = _multihead_attention
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        torch.nn.MultiheadAttention.forward = _TORCH_FORWARD
        transformer._detect_is_causal_mask = detect


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


class RealIndices(Error):
    """A RealIndices error says that the model uses real numbers as indices."""


def export(model, examples, names, loss):
    """Returns the exported program of the model with its loss. `examples` are tensors, and `names` their names."""
    check_version(torch.__version__)
    bind, targets = bind_inputs(model, names, "targets" in names)
    whole = _WithLoss(model, bind, loss, targets)
    whole.training = model.training  # the modules inside keep their own modes
    with transformers_hooks(model), torch_hooks():
        program, refusal, again = _attempt(whole, examples, names, strict=False)
        if again:  # the other kind of export may take what this kind refuses
            program, _, _ = _attempt(whole, examples, names, strict=True)
    if program is None:
        raise refusal
    return program


def _attempt(module, examples, names, strict):
    """Returns (the exported program, None, False), or (None, the Error, whether another kind of export may do)."""
    # From PyTorch 2.6 on, torch.export.export itself keeps the operations of training.
    old = numbers_of(torch.__version__) < (2, 6)
    function = torch.export.export_for_training if old else torch.export.export
    printed, complaints = io.StringIO(), io.StringIO()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # PyTorch logs what the Error says
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The tensor attribute")  # of tensors that modules of PyTorch keep twice
            program = function(module, tuple(examples), strict=strict)
    except Error as error:
        return None, Error(str(error)), False
    except Exception as error:  # noqa: BLE001  (torch.export raises errors of many classes)
        refusal = _refusal(error, examples, names)
        return None, refusal, not isinstance(refusal, RealIndices)
    finally:
        logging.disable(disabled)
    sys.stdout.write(printed.getvalue())  # what the model prints
    sys.stderr.write(complaints.getvalue())
    return program, None, False


def _refusal(error, examples, names):
    """Returns the Error for what torch.export raised: the user's line and the first sentences of the cause."""
    text = str(error).strip()
    head = "torch.export cannot capture the model" + _user_line(error)
    if any(part in text for part in _INDEX_ERRORS) and any(tensor.is_floating_point() for tensor in examples):
        inputs = " or ".join(name for name, tensor in zip(names, examples) if tensor.is_floating_point())
        return RealIndices(f"{head}: the model uses real numbers as indices. Try: the type i32 for the input {inputs}, "
                           f"such as {inputs.split(' ')[0]}=\"i32[batch, sequence]\"")
    if any(part in text.lower() for part in _DATA_DEPENDENT):
        return Error(f"{head}: {text.splitlines()[0][:_LINE_CHARACTERS]}\n"
                     "  The model must not choose its operations by the values of tensors.")
    lines = [line[:_LINE_CHARACTERS] for line in text.split("\n\n")[0].splitlines()[:_CAUSE_LINES]]
    types = ", ".join(f"{name} {'f32' if tensor.is_floating_point() else 'i32'}{list(tensor.shape)}"
                      for name, tensor in zip(names, examples))
    return Error(f"{head}: {type(error).__name__}: " + "\n  ".join(lines or ["no reason given"])
                 + f"\n  The inputs were {types}.")


def _user_line(error):
    """Returns " at model.py:31", the last line outside PyTorch, this package and Python's library, or nothing."""
    own = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__, os.__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((*own[:2], "<"))
              and (not frame.filename.startswith(own[2]) or "site-packages" in frame.filename)]
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
