"""Reads the cases of tests/bad_input. A case is a spoilt copy of the good job, with the answer that `weir` must give.

A file of cases/ reads like a diff of good.textproto with the expected answer below:

    # Why this is wrong, in a sentence.
    - node { name: "loss" op: "reduce_mean" input: "token_loss" }     a line of the good job, without its indent
    + node { name: "loss" op: "reduce_meen" input: "token_loss" }     the line in its place
    $ check JOB                                                       the arguments (this is the default)
    ! 65                                                              the exit code
    ! W0408 at function main, node loss                               texts that the message contains

A `+` line that follows no `-` line is added at the end of the job. Several `-` lines in a row are replaced together.
"""

import dataclasses
import os


@dataclasses.dataclass
class Case:
    name: str
    reason: str
    job: str = ""
    arguments: list = dataclasses.field(default_factory=lambda: ["check", "JOB"])
    exit_code: int = 0
    contains: list = dataclasses.field(default_factory=list)


def read_cases(folder):
    with open(os.path.join(folder, "good.textproto"), encoding="utf-8") as file:
        good = file.read().splitlines()
    cases = []
    for name in sorted(os.listdir(os.path.join(folder, "cases"))):
        with open(os.path.join(folder, "cases", name), encoding="utf-8") as file:
            cases.append(parse_case(os.path.splitext(name)[0], file.read(), good))
    return cases


def parse_case(name, text, good):
    """Returns the case that `text` describes. A ValueError says what is wrong with the description."""
    case = Case(name, reason="")
    lines = list(good)
    insert_at = None
    for number, line in enumerate(text.splitlines(), 1):
        mark, rest = line[:1], line[2:]
        if mark == "-":
            matches = [i for i, known in enumerate(lines) if known is not None and known.strip() == rest.strip()]
            if len(matches) != 1:
                raise ValueError(f"{name}:{number}: {len(matches)} lines of the good job are: {rest}")
            insert_at = matches[0]
            lines[insert_at] = None
        elif mark == "+":
            if insert_at is None:
                lines.append(rest)
            else:
                insert_at += 1
                lines.insert(insert_at, rest)
        elif mark == "#":
            case.reason += rest
        elif mark == "$":
            case.arguments = rest.split()
        elif mark == "!" and rest.isdigit():
            case.exit_code = int(rest)
        elif mark == "!":
            case.contains.append(rest)
        elif line.strip():
            raise ValueError(f"{name}:{number}: no such mark: {line}")
        if mark not in ("-", "+"):
            insert_at = None
    if not case.reason or not case.exit_code or not case.contains:
        raise ValueError(f"{name}: needs a reason (#), an exit code and texts (!)")
    case.job = "\n".join(line for line in lines if line is not None) + "\n"
    return case
