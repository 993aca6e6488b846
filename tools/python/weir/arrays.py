"""Arrays of NumPy and tensors of PyTorch as the data of a job: each becomes a file beside the job."""

import dataclasses
import os
import re
import typing

from weir.errors import Error

FOLDER = "data"  # of the files of arrays, in the folder of the job
OPTIONS = ("held_out", "scale", "weight", "feed")  # keys of the short form that name no array
_KINDS = {"b": (1,), "u": (1, 2, 4, 8), "i": (1, 2, 4, 8), "f": (2, 4, 8)}  # bytes of elements that the program reads


@dataclasses.dataclass(frozen=True)
class Source:
    """A Source is a file `path`, relative to the folder of a job, that `array` shall fill."""
    path: str
    array: typing.Any

    @property
    def name(self):
        return os.path.basename(self.path).split(".")[0]

    def write(self, folder):
        import numpy
        target = os.path.join(folder, self.path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        part = f"{target}.part"
        with open(part, "wb") as file:
            numpy.save(file, self.array, allow_pickle=False)
        os.replace(part, target)


def is_array(value):
    """Returns whether a value is an array of NumPy, a tensor of PyTorch or the like."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _short(value):
    """Returns the beginning of what Python prints of a value."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _is_path(value):
    return isinstance(value, (str, os.PathLike))


def _is_npy(value):
    paths = value if isinstance(value, (list, tuple)) else [value]
    return bool(paths) and all(_is_path(path) and os.fspath(path).endswith(".npy") for path in paths)


def are_arrays(data, kinds):
    """Returns whether a dictionary is the short form {name: array or path of a .npy file}."""
    names = [key for key, value in data.items() if key not in OPTIONS or is_array(value)]
    if any(is_array(data[name]) for name in names):
        return True
    if len(names) == 1 and names[0] in kinds:
        return False
    return bool(names) and all(_is_npy(data[name]) for name in names)


def _as_numpy(name, value):
    """Returns an array of NumPy whose elements the program reads."""
    try:
        import numpy
    except ImportError:
        raise Error(f"data: array {name}: expected NumPy, which writes arrays; found none. Try: pip install numpy, or "
                    "the path of a .npy file") from None
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
    array = numpy.asanyarray(value) if isinstance(value, numpy.ndarray) else numpy.asarray(value)
    if array.dtype.kind not in _KINDS or array.dtype.itemsize not in _KINDS[array.dtype.kind]:
        raise Error(f"data: array {name}: expected elements of bool, of integers or of real numbers of at most 64 "
                    f"bits; found {array.dtype}. Try: {name}.astype(\"float32\") or {name}.astype(\"int32\")")
    if array.ndim == 0:
        raise Error(f"data: array {name}: expected a first dimension that counts samples; found a single number")
    if isinstance(array, numpy.ma.MaskedArray):
        raise Error(f"data: array {name}: expected an element at each place; found a masked array. Try: "
                    f"{name}.filled(0), and the mask as an array of its own")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return numpy.ascontiguousarray(array)  # numpy.save keeps column-major order, which the program does not read


def _check_counts(arrays):
    """Refuses arrays with different numbers of samples."""
    counts = {name: len(array) for name, array in arrays.items()}
    first = next(iter(counts), None)
    for name, count in counts.items():
        if count != counts[first]:
            raise Error(f"data: array {name}: expected {counts[first]} samples, as array {first} has; found {count}, "
                        f"by the first dimension of its shape {tuple(arrays[name].shape)}")


def _file_name(name):
    if not name or not isinstance(name, str) or "/" in name or name.startswith("."):
        raise Error(f"data: expected the name of an array, such as \"tokens\"; found {name!r}")
    return name


class _Files:
    """The _Files are the files of a job's arrays, as far as the arrays are not files yet."""

    def __init__(self):
        self.sources = []
        self.arrays = {"path": {}, "held_out_path": {}}

    def paths(self, name, value, field):
        """Returns the paths of an array or of files, and remembers the arrays that are to be written."""
        if is_array(value):
            array = _as_numpy(name, value)
            self.arrays[field][name] = array
            ending = "" if field == "path" else ".held_out"
            self.sources.append(Source(f"{FOLDER}/{_file_name(name)}{ending}.npy", array))
            return [self.sources[-1].path]
        paths = value if isinstance(value, (list, tuple)) else [value]
        if not _is_npy(paths):
            raise Error(f"data: array {name}: expected an array of NumPy, a tensor of PyTorch, or the path of a .npy "
                        f"file; found {_short(value)}. Try: numpy.asarray(...)")
        return [os.path.abspath(os.fspath(path)) for path in paths]


def _is_stream(data):
    """Returns whether the only array is one long row of tokens, which is cut into windows."""
    names = [key for key in data if key not in OPTIONS]
    return names == ["tokens"] and is_array(data["tokens"]) and len(data["tokens"].shape) == 1


def _stream(data, files):
    """Returns the kind "tokens" for one long row of tokens."""
    extra = [key for key in data if key in OPTIONS and key not in ("held_out", "feed")]
    if extra:
        raise Error(f"data: expected held_out or feed beside one long row of tokens; found {extra[0]}")
    array = _as_numpy("tokens", data["tokens"])
    if array.dtype.kind not in "iu":
        raise Error(f"data: array tokens: expected integers; found {array.dtype}. Try: tokens.astype(\"int32\")")
    if array.dtype.name not in ("uint8", "uint16", "uint32", "int32", "int64"):
        array = array.astype("int64")
    files.sources.append(Source(f"{FOLDER}/tokens.npy", array))
    fields = {"path": files.sources[-1].path}
    held_out = data.get("held_out")
    if isinstance(held_out, dict):
        held_out = held_out.get("tokens")
    if is_array(held_out):
        files.sources.append(Source(f"{FOLDER}/tokens.held_out.npy", _as_numpy("tokens", held_out)))
        fields["held_out_path"] = files.sources[-1].path
    elif held_out is not None:
        fields["held_out"] = held_out
    return {"tokens": fields, **({"feed": data["feed"]} if "feed" in data else {})}


def as_files(data, kinds):
    """Returns (data whose arrays are paths, Sources of files to write). Data without arrays stay as they are.

    The short form is {name: array, ..., "held_out": share or {name: array}, "scale": {name: factor}, "feed": feeds}.
    """
    if not isinstance(data, dict) or not are_arrays(data, kinds):
        return data, []
    files = _Files()
    if _is_stream(data):
        return _stream(data, files), files.sources
    entries = {}
    for name, value in data.items():
        if name not in OPTIONS or is_array(value):
            entries[name] = {"name": name, "path": files.paths(name, value, "path")}
    fields = {"array": list(entries.values())}
    held_out = data.get("held_out")
    if isinstance(held_out, dict):
        for name, entry in entries.items():
            if name not in held_out:
                raise Error(f"data: held_out: expected an array {name}, as the data have; found "
                            f"{', '.join(map(str, held_out)) or 'none'}")
            entry["held_out_path"] = files.paths(name, held_out[name], "held_out_path")
    elif held_out is not None and not is_array(held_out):
        fields["held_out"] = held_out
    for counted in files.arrays.values():
        _check_counts(counted)
    for option in ("scale", "weight"):
        if option in data and not is_array(data[option]):
            fields[option] = data[option]
    return {"arrays": fields, **({"feed": data["feed"]} if "feed" in data else {})}, files.sources


def check_inputs(data, graph_text):
    """Refuses named arrays among which an input of the model finds none."""
    entries = data["arrays"].get("array") if isinstance(data, dict) and isinstance(data.get("arrays"), dict) else None
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        return
    names = [entry["name"] for entry in entries if "name" in entry]
    feeds = data.get("feed", {})
    bound = {feed.get("input"): feed.get("from") for feed in feeds if isinstance(feed, dict)} \
        if isinstance(feeds, (list, tuple)) else feeds
    main = next((part for part in re.split(r"^ *function \{", graph_text, flags=re.MULTILINE)
                 if re.match(r'\s*name: "main"', part)), "")
    for name in re.findall(r'^\s*input \{ name: "([^"]+)"', main, re.MULTILINE):
        if bound.get(name, name) not in names:
            raise Error(f"data: expected an array for the input {name}; found arrays {', '.join(names)}. Try: "
                        f"data={{..., \"{name}\": array}}, or \"feed\": {{\"{name}\": \"{names[0]}\"}} in data")


def check_ignored(sources, graph_text):
    """Refuses targets of -100, PyTorch's mark of what does not count, for a model that ignores no value."""
    if "softmax_cross_entropy" not in graph_text or "ignore_index" in graph_text:
        return
    for source in sources:
        if source.array.dtype.kind == "i" and source.array.size and int(source.array.min()) == -100:
            raise Error(f"data: array {source.name}: expected targets that all count, as the model was captured; found "
                        "-100. Try: weir.from_torch(..., ignore_index=-100)")
