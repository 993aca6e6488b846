"""Prints messages as protobuf text and cuts printed messages apart, without the protobuf library.

A message is a list of (field, value) pairs, so that fields keep their order and may repeat. A value is a message, a
text, a number, a truth value, a list of whole numbers, or an Enum.
"""

import dataclasses
import math

from weir.errors import Error

_LINE_CHARACTERS = 120
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclasses.dataclass(frozen=True)
class Enum:
    """An Enum is the name of a value of an enumeration, which protobuf text writes without quotes."""
    name: str


class Message(list):
    """A Message is a list of (field, value) pairs."""

    def add(self, field, value):
        """Appends one field and returns the value, so that nested messages can be filled afterwards."""
        self.append((field, value))
        return value


def quoted(text):
    """Returns a text as a string literal of protobuf text."""
    escaped = "".join(_ESCAPES.get(c, c if ord(c) >= 32 and ord(c) != 127 else f"\\{ord(c):03o}") for c in text)
    return f'"{escaped}"'


def _scalar(value):
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return repr(value)
    if isinstance(value, int):
        return str(value)
    return quoted(value)


def _field(name, value):
    """Returns one field on one line."""
    if isinstance(value, Message):
        inner = " ".join(_field(*field) for field in value)
        return f"{name} {{ {inner} }}" if inner else f"{name} {{}}"
    if isinstance(value, (list, tuple)):
        return f"{name}: [{', '.join(_scalar(item) for item in value)}]"
    return f"{name}: {_scalar(value)}"


def to_text(message, indent=0):
    """Returns the text of a message. A field stands on one line if the line is short enough."""
    lines = []
    margin = "  " * indent
    for name, value in message:
        line = margin + _field(name, value)
        if len(line) <= _LINE_CHARACTERS and not (indent == 0 and isinstance(value, Message) and len(value) > 3):
            lines.append(line)
        elif isinstance(value, Message):
            lines += [f"{margin}{name} {{", to_text(value, indent + 1)[:-1], f"{margin}}}"]
        else:
            lines.append(line)
    return "".join(line + "\n" for line in lines)


def field_text(text, name):
    """Returns the text between the braces of the first field `name` on the outermost level of a printed message."""
    depth, i, word, begin = 0, 0, "", None
    last_word = ""
    while i < len(text):
        c = text[i]
        if c in "\"'":
            end = i + 1
            while end < len(text) and text[end] != c:
                end += 2 if text[end] == "\\" else 1
            i, word = end + 1, ""
            continue
        if c == "#":
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
            continue
        if c.isalnum() or c == "_":
            word += c
        else:
            last_word, word = word or last_word, ""
        if c == "{":
            if depth == 0 and last_word == name:
                begin = i + 1
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                if begin is not None:
                    return text[begin:i]
                last_word = ""
        i += 1
    raise Error(f"expected a field \"{name}\" in the text of a job; found none")
