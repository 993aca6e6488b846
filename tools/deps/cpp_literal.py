"""Writes texts into C++, for files that are embedded in the program."""

PIECE_MAX = 8000  # characters of a literal; compilers limit the length of one


def literal(text):
    """Returns the text as adjacent C++ raw strings."""
    assert ')TEXT"' not in text
    return "\n    ".join('R"TEXT(' + text[at:at + PIECE_MAX] + ')TEXT"' for at in range(0, len(text), PIECE_MAX))
