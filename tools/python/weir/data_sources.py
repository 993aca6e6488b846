"""The message `data` of a job: where the inputs of a model come from."""

import os
import warnings

from weir.errors import Error
from weir.textproto import Enum, Message

_TOKEN_TYPES = ("FOUND", "U16", "U32")
_LLMC_MAGICS = (20240520, 20240801)  # of the files of llm.c
_EXPECTED = ("expected the path of a text, \"synthetic\", arrays with names such as {\"tokens\": tokens, "
             "\"targets\": targets}, or a kind with its fields such as "
             "{\"tokens\": {\"path\": \"tokens.bin\", \"type\": \"u16\"}, \"feed\": {\"idx\": \"tokens\"}}")


def _text(value):
    if not isinstance(value, (str, os.PathLike)):
        raise ValueError("a text")
    return os.fspath(value)


def _texts(value):
    return [_text(item) for item in value] if isinstance(value, (list, tuple)) else _text(value)


def _number(value):
    if isinstance(value, (str, bool)) or not hasattr(value, "__float__"):
        raise ValueError("a number")
    return float(value)


def _numbers(value):
    try:
        return [_number(item) for item in value]
    except (TypeError, ValueError):
        raise ValueError("a list of numbers, one per path") from None


def _token_type(value):
    name = value.name if isinstance(value, Enum) else value
    if not isinstance(name, str) or name.upper() not in _TOKEN_TYPES:
        raise ValueError(f"one of {', '.join(_TOKEN_TYPES)}")
    return Enum(name.upper())


def _scales(value):
    """Returns a message per array of {array: factor} or {array: (factor, summand)}."""
    if not isinstance(value, dict):
        raise ValueError("{array: factor} or {array: (factor, summand)}")
    messages = []
    for name, scale in value.items():
        by, plus = scale if isinstance(scale, (list, tuple)) and len(scale) == 2 else (scale, None)
        message = Message([("name", _text(name)), ("by", _number(by))])
        if plus is not None:
            message.add("plus", _number(plus))
        messages.append(message)
    return Repeated(messages)


def _arrays(value):
    """Returns a message per array of {array: paths}, or of a list of {"name": array, "path": paths}."""
    entries = [{"name": name, "path": path} for name, path in value.items()] if isinstance(value, dict) else value
    fields = ("name", "path", "held_out_path")
    if not isinstance(entries, (list, tuple)) or not all(
            isinstance(entry, dict) and {"name", "path"} <= entry.keys() <= set(fields) for entry in entries):
        raise ValueError("{array: path of a .npy file}, or a list of {\"name\": array, \"path\": path}")
    return Repeated(Message((field, _one_or_all(_texts(entry[field]))) for field in fields if field in entry)
                    for entry in entries)


def _one_or_all(texts):
    return texts[0] if isinstance(texts, list) and len(texts) == 1 else texts


class Repeated(list):
    """A Repeated holds the values of a field that occurs once for each."""


# The kinds of data with their fields, and what makes a value of protobuf text of each field.
_KINDS = {
    "text": {"path": _text, "held_out": _number},
    "tokens": {"path": _texts, "weight": _numbers, "type": _token_type, "held_out": _number,
               "held_out_path": _texts},
    "idx": {"images": _text, "labels": _text, "test_images": _text, "test_labels": _text},
    "arrays": {"path": _texts, "array": _arrays, "weight": _numbers, "held_out": _number, "held_out_path": _texts,
               "scale": _scales},
    "synthetic": {},
}
KIND_NAMES = tuple(_KINDS)


def _kind_message(kind, fields):
    """Returns the message of a kind. A path alone stands for {"path": path}."""
    known = _KINDS[kind]
    if isinstance(fields, (str, os.PathLike)) and "path" in known:
        fields = {"path": fields}
    if not isinstance(fields, dict):
        raise Error(f"data: expected {kind} as a dictionary with fields out of {', '.join(known) or 'none'}; "
                    f"found {fields!r}")
    message = Message()
    for name, value in fields.items():
        if name not in known:
            raise Error(f"data: expected fields of {kind} out of {', '.join(known) or 'none'}; found \"{name}\"")
        try:
            made = known[name](value)
        except ValueError as error:
            raise Error(f"data: expected {kind}.{name} as {error}; found {value!r}") from None
        for item in made if isinstance(made, Repeated) else [made]:
            message.add(name, item)
    return message


def _feed_messages(feeds):
    """Returns a message per feed of {input: feed}, or of a list of {"input": input, "from": feed}."""
    pairs = list(feeds.items()) if isinstance(feeds, dict) else []
    for feed in feeds if isinstance(feeds, (list, tuple)) else []:
        whole = isinstance(feed, dict) and feed.keys() == {"input", "from"}
        pairs.append((feed["input"], feed["from"]) if whole else (None, None))
    if not isinstance(feeds, (dict, list, tuple)) or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise Error("data: expected feed as {input: feed}, such as {\"idx\": \"tokens\"}, or as a list of "
                    f"{{\"input\": \"idx\", \"from\": \"tokens\"}}; found {feeds!r}")
    return [Message([("input", name), ("from", source)]) for name, source in pairs]


def _kind_of(path):
    """Returns the kind of a file or folder. An Error asks where the name leaves both tokens and a text possible."""
    ending = os.path.splitext(path)[1].lower()
    if ending in (".npz", ".safetensors") or os.path.isdir(path):
        return "arrays"
    if ending == ".npy":
        return "tokens"
    if ending != ".bin":
        return "text"
    if os.path.exists(path[:-len(ending)] + ".idx"):
        return "tokens"  # an index of Megatron
    try:
        with open(path, "rb") as file:
            if int.from_bytes(file.read(4), "little") in _LLMC_MAGICS:
                return "tokens"
    except OSError:
        pass  # the program says what is wrong with the file
    raise Error(f"data: expected tokens or a text; found {path}, which may be either. Are they token ids? Try: "
                f"data={{\"tokens\": {{\"path\": \"{path}\", \"type\": \"u16\"}}}}, or \"u32\"; or for bytes of a text: "
                f"data={{\"text\": \"{path}\"}}")


def data_message(data):
    """Returns the message of "synthetic", of the path of a text, or of {kind: {field: value}, "feed": feeds}.

    None is synthetic data with a warning, because a model learns nothing of use from random numbers.
    """
    if data is None:
        warnings.warn("the job has no data, so it trains on random numbers. Try: weir.job(..., data=\"book.txt\"), or "
                      "data=\"synthetic\" if random numbers are meant", stacklevel=3)
        data = "synthetic"
    if isinstance(data, str) and data == "synthetic":
        data = {"synthetic": {}}
    if isinstance(data, (str, os.PathLike)):
        data = {_kind_of(os.fspath(data)): {"path": data}}
    if not isinstance(data, dict):
        hint = ". Try: data={\"tokens\": tokens}, with the name of the input" if hasattr(data, "shape") else ""
        raise Error(f"data: {_EXPECTED}; found {type(data).__module__}.{type(data).__name__}{hint}")
    kinds = [kind for kind in data if kind != "feed"]
    if len(kinds) != 1 or kinds[0] not in _KINDS:
        raise Error(f"data: expected one kind out of {', '.join(_KINDS)}, and perhaps `feed`; found "
                    f"{', '.join(map(str, kinds)) or 'no kind'}")
    message = Message([(kinds[0], _kind_message(kinds[0], data[kinds[0]]))])
    for feed in _feed_messages(data.get("feed", {})):
        message.add("feed", feed)
    return message
