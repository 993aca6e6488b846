"""Turns the rows that the benches print (bench_row.h) into lines with ratio, range and verdict.

A row is a dictionary with the fields what, unit, ours (samples), against (a name), theirs (samples taken in turn with
ours, or one budget), better ("lower" or "higher"), limit (of the median ratio; absent: for information) and note.
"""

import dataclasses
import statistics

# A figure counts as noisy if its largest ratio over its smallest ratio exceeds this spread.
NOISY_SPREAD = 1.5


@dataclasses.dataclass
class Line:
    what: str
    ours: str
    theirs: str
    ratio: str
    verdict: str
    note: str


@dataclasses.dataclass
class Table:
    """A Table holds texts that do not compare two sides, with a list for each line."""
    columns: list
    lines: list


def row(what, unit, ours, against, theirs, better, limit, note):
    made = {"what": what, "unit": unit, "ours": ours, "against": against, "theirs": theirs, "better": better,
            "note": note}
    if limit is not None:
        made["limit"] = limit
    return made


def number(value):
    """Returns a number as a text with three significant digits and no exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def ratios(row):
    """Returns ours over theirs, pair by pair. The result is empty if there is nothing to divide by."""
    ours, theirs = row["ours"], row["theirs"]
    if len(theirs) == 1:
        theirs = theirs * len(ours)
    if len(theirs) != len(ours) or not all(theirs):
        return []
    return [a / b for a, b in zip(ours, theirs)]


def verdict(row):
    limit = row.get("limit")
    if limit is None:
        return "-"
    values = ratios(row) or row["ours"]
    median = statistics.median(values)
    met = median <= limit if row["better"] == "lower" else median >= limit
    # Noise matters where it could have changed the answer.
    doubtful = any((value <= limit if row["better"] == "lower" else value >= limit) != met for value in values)
    noisy = min(values) > 0 and max(values) / min(values) > NOISY_SPREAD
    return ("met" if met else "not met") + (" (noisy)" if doubtful and noisy else "")


def line_of(row):
    unit = " " + row["unit"] if row["unit"] else ""
    theirs = row["against"]
    if len(row["theirs"]) > 1:
        theirs += " " + number(statistics.median(row["theirs"])) + unit
    values = ratios(row)
    ratio = ""
    if values:
        ratio = f"{statistics.median(values):.3f} [{min(values):.3f} .. {max(values):.3f}]"
    return Line(row["what"], number(statistics.median(row["ours"])) + unit, theirs, ratio, verdict(row), row["note"])


def text_of(rows):
    """Returns aligned lines for a terminal, from rows or a Table."""
    if isinstance(rows, Table):
        return aligned([rows.columns, *rows.lines])
    lines = [Line("what", "ours", "theirs or budget", "ours / theirs", "verdict", "")] + [line_of(row) for row in rows]
    return aligned([dataclasses.astuple(line) for line in lines])


def aligned(cells):
    widths = [max(len(cell[i]) for cell in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(cell, widths)).rstrip() for cell in cells)


def markdown_of(rows):
    if isinstance(rows, Table):
        return "\n".join("| " + " | ".join(cells) + " |" for cells in [rows.columns, *rows.lines]).replace(
            "\n", "\n" + "|---" * len(rows.columns) + "|\n", 1)
    lines = ["| what | ours | theirs or budget | ours / theirs [range] | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        line = line_of(row)
        note = f" ({line.note})" if line.note else ""
        lines.append(f"| {line.what}{note} | {line.ours} | {line.theirs} | {line.ratio} | {line.verdict} |")
    return "\n".join(lines)
