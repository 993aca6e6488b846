"""Reads and writes safetensors files: eight bytes of header length, a JSON header, then the tensors in row-major order.

Tensors are bytes here, so that this module needs neither NumPy nor PyTorch. A tensor is in memory only while it is
written or copied.
"""

import json
import math
import mmap
import os
import struct

from weir.errors import Error

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}


def write(path, tensors):
    """Writes {name: (element type such as "F32", shape, function that returns the bytes)}, one tensor after the other.

    The file replaces an earlier one as a whole.
    """
    header, offset = {}, 0
    for name, (dtype, shape, _) in tensors.items():
        end = offset + _BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = f"{path}.partial-{os.getpid()}"
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data())
    os.replace(partial, path)


def read(path):
    """Returns {name: (element type, shape, bytes as a view of the file)}."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[8 + length:]
    except (OSError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise Error(f"{path}: expected a safetensors file; {error}") from error
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}
