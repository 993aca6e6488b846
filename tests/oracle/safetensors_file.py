"""Reads and writes safetensors files: eight bytes of header length, a JSON header, then the tensors in row-major order."""

import json
import struct

import numpy
import torch

_DTYPES = {"F32": numpy.float32, "I32": numpy.int32, "BOOL": numpy.bool_}
_WIDE = {"F32": numpy.float64, "I32": numpy.int64, "BOOL": numpy.bool_}


def read(path):
    """Returns ({name: tensor}, {name: note}). f32 becomes torch.float64, i32 becomes torch.int64, and masks stay."""
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    notes = {name: note for name, note in metadata.items() if name.split(":")[0] != "crc32c"}  # checksums are no notes
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = numpy.frombuffer(data[begin:end], dtype=_DTYPES[entry["dtype"]])
        tensors[name] = torch.from_numpy(values.astype(_WIDE[entry["dtype"]]).reshape(entry["shape"]))
    return tensors, notes


def write(path, tensors):
    """Writes arrays of float32 by name."""
    header, data = {}, b""
    for name, values in tensors.items():
        values = numpy.ascontiguousarray(values, dtype="<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
