"""Writes the files that the cases of tests/bad_input name: data, weights and jobs that no person writes."""

import gzip
import json
import os
import random
import struct

# SHAPES lists the weights of good.textproto.
SHAPES = {"head": [8, 16], "table": [16, 8]}
for _layer in (0, 1):
    SHAPES.update({f"layers.{_layer}.gamma": [8], f"layers.{_layer}.wq": [8, 8], f"layers.{_layer}.wo": [8, 8]})

DEEP = 10_000
HUGE_BYTES = 70 << 20
MANY_NODES = 100_000


def _elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def _safetensors(shapes=None, edit=None, data=None, dtype="F32"):
    """Returns the bytes of a file of zeros. `edit` may spoil the header, and `data` may replace the tensors."""
    header, offset = {}, 0
    for name, shape in sorted((shapes or SHAPES).items()):
        end = offset + 4 * _elements(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    if edit:
        edit(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + (bytes(offset) if data is None else data)


def _overlap(header):
    header["layers.1.wq"]["data_offsets"] = header["layers.0.wq"]["data_offsets"]


def _gap(header):
    header["head"]["data_offsets"] = [0, 256]
    header["head"]["shape"] = [4, 16]


def _wrong_checksum(header):
    header["__metadata__"] = {"crc32c:head": "12345678"}


def _idx(magic, shape, data):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", size) for size in shape) + data


def write_files(folder, good_job):
    """Writes all files into `folder`. `good_job` is the text of good.textproto."""
    images = _idx(0x803, [16, 2, 2], bytes(64))
    weights = _safetensors()
    files = {
        "empty.txt": b"",
        "three_bytes.txt": b"abc",
        "text.txt": b"The quick brown fox jumps over the lazy dog.\n" * 50,
        "images.idx": images,
        "floats.idx": _idx(0xD03, [16, 2, 2], bytes(256)),
        "labels.idx": _idx(0x801, [16], bytes(16)),
        "one_label.idx": _idx(0x801, [1], bytes(1)),
        "truncated.idx": images[:40],
        "truncated.idx.gz": gzip.compress(images, mtime=0)[:-12],
        "garbage.idx.gz": b"\x1f\x8b" + bytes(range(64)),
        "absurd.idx": _idx(0x803, [0xFFFFFFFF] * 3, bytes(64)),
        "good.safetensors": weights,
        "truncated.safetensors": weights[:-100],
        "overlapping.safetensors": _safetensors(edit=_overlap),
        "gap.safetensors": _safetensors(edit=_gap),
        "long_header.safetensors": struct.pack("<Q", 1 << 40) + weights[8:],
        "garbage_header.safetensors": struct.pack("<Q", 100) + b"{" * 100,
        "wrong_shape.safetensors": _safetensors({**SHAPES, "head": [16, 8]}),
        "missing_tensor.safetensors": _safetensors({name: shape for name, shape in SHAPES.items() if name != "head"}),
        "additional_tensor.safetensors": _safetensors({**SHAPES, "tail": [2]}),
        "integers.safetensors": _safetensors(dtype="I32"),
        "wrong_checksum.safetensors": _safetensors(edit=_wrong_checksum),
        "random.bin": random.Random(1).randbytes(4096),
        "nul.bin": bytes(4096),
        "serialized.bin": b"\x0a\x04good\x12\x06\x0a\x04good",
        "nul_inside.textproto": good_job.replace('name: "good"', 'name: "go\0od"').encode(),
        "not_utf8.textproto": good_job.encode().replace(b'name: "good"', b'name: "\xff\xfe"'),
        "deep.textproto": b"graph " + b"{ function " * DEEP,
        "many_errors.textproto": b"nod { } " * MANY_NODES,
        "long_name.textproto": good_job.replace('"matmul"', f'"{"x" * 1_000_000}"', 1).encode(),
        "huge.textproto": b"# " + b"x" * HUGE_BYTES + b"\n",
    }
    os.mkfifo(os.path.join(folder, "pipe"))
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
