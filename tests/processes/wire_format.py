"""Reads messages of protobuf without the library of protobuf and without a schema."""

import collections


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Returns {number: [value]} of a message: numbers, or bytes."""
    found = collections.defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = int.from_bytes(data[at:at + size], "little"), at + size
        found[number].append(value)
    return found
