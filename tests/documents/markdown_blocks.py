"""Reads the code blocks of a Markdown document, and the commands in these blocks.

The language of a block says what the block is:

    ```sh                  commands, one a line; `# …` after two spaces is a comment
    ```console             a session: `$ command`, then the output that the command prints
    ```textproto file=F    the content of file F; a later block of the same file replaces it
    ```                    anything else: a drawing, an output, code

In the output of a session, a line `…` stands for any lines, and each number with its unit stands for any number.
A backslash at the end of a line continues the command in the next line. An HTML comment in the line before a block
changes the treatment of that block:

    <!-- not run: REASON -->        the commands of the block are checked, but not run
    <!-- prepare: COMMAND -->       COMMAND is run first, because the reader is expected to have its result
    <!-- exit: N -->                the last command of the block ends with exit code N
"""

import dataclasses
import re

_FENCE = re.compile(r"^\s*```(.*)$")
_NOTE = re.compile(r"^<!-- (not run|prepare|exit): (.*?) -->$")


@dataclasses.dataclass
class Command:
    text: str
    line: int  # in the document, from 1
    output: list = None  # the lines that the document shows below the command; None: the document shows no output
    exit_code: int = 0


@dataclasses.dataclass
class Block:
    language: str
    line: int
    lines: list
    file: str = ""
    not_run: str = ""
    prepare: list = dataclasses.field(default_factory=list)
    exit_code: int = 0

    def content(self):
        return "\n".join(self.lines) + "\n"

    def commands(self):
        if self.language == "sh":
            found = _commands_of_script(self.lines, self.line + 1)
        elif self.language == "console":
            found = _commands_of_session(self.lines, self.line + 1)
        else:
            return []
        if found:
            found[-1].exit_code = self.exit_code
        return found


def read_blocks(text):
    """Returns all blocks of a document, in order.

    Raises ValueError for a block without an end and for a note without a block.
    """
    blocks, block, notes = [], None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence, note = _FENCE.match(line), _NOTE.match(line)
        if block is None and fence:
            block = _begin(fence.group(1), number, notes)
            notes = []
        elif block is not None and fence and not fence.group(1):
            blocks.append(block)
            block = None
        elif block is not None:
            block.lines.append(line)
        elif note:
            notes.append((note.group(1), note.group(2), number))
        elif notes and line.strip():
            raise ValueError(f"line {notes[-1][2]}: no code block follows the note '{notes[-1][0]}'")
    if block is not None:
        raise ValueError(f"line {block.line}: this code block has no end")
    return blocks


def _begin(info, number, notes):
    words = info.split()
    block = Block(words[0] if words else "", number, [])
    for word in words[1:]:
        if not word.startswith("file="):
            raise ValueError(f"line {number}: expected file=NAME after the language; found {word}")
        block.file = word.removeprefix("file=")
    for kind, value, _ in notes:
        if kind == "not run":
            block.not_run = value
        elif kind == "prepare":
            block.prepare.append(value)
        else:
            block.exit_code = int(value)
    return block


def _joined(lines, number):
    """Yields (line number, text) of each line. A line that ends in a backslash is joined to the next line."""
    text, begin = "", number
    for offset, line in enumerate(lines):
        if not text:
            begin = number + offset
        if line.endswith("\\"):
            text += line[:-1].rstrip() + " "
            continue
        yield begin, text + line.strip() if text else line
        text = ""


def _commands_of_script(lines, number):
    commands = []
    for begin, line in _joined(lines, number):
        text = re.sub(r"(^|\s{2,})# .*$", "", line).strip()
        if text:
            commands.append(Command(text, begin))
    return commands


def _commands_of_session(lines, number):
    commands = []
    for begin, line in _joined(lines, number):
        if line.startswith("$ "):
            commands.append(Command(line[2:].strip(), begin, []))
        elif commands:
            commands[-1].output.append(line.rstrip())
        elif line.strip():
            raise ValueError(f"line {begin}: expected `$ command` first in a session; found {line}")
    return commands


# The pattern includes the unit of a number, because 950 ms and 1.2 s are the same quantity on two machines.
_NUMBER = re.compile(r"\d+(?:h\d\dm|m\d\ds)\b|\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?(?:[kMG]|B|[KMG]iB|ns|us|ms|s)\b)?")


def _shape(line):
    """Returns a line without its numbers and without the width of its columns."""
    return re.sub(r"[\s]+", " ", _NUMBER.sub("#", line)).strip()


def first_difference(expected, actual):
    """Returns the first line of `expected` that `actual` lacks at its place, or None if these two lists of lines agree.

    A last line of `actual` that `expected` lacks is a difference, too. The result is then "(the end)".
    """
    text = "".join(_shape(line) + "\n" for line in actual if line.strip())
    wanted = [line for line in expected if line.strip()]
    pattern = ""
    for line in wanted:
        pattern += r"(?:.*\n)*" if line.strip() == "…" else re.escape(_shape(line)) + r"\n"
        if not re.match(pattern, text):
            return line
    return None if re.fullmatch(pattern, text) else "(the end)"
