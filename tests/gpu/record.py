"""Keeps what a check of a GPU measures: a line of JSON per result as it is measured, and a table at the end."""

import json
import math
import os
import time


class Record:
    """Appends rows to gpu_check.jsonl in a folder, and what programs print to gpu_check.log.

    A row has the phase, the name of the result, its value and unit, and the seconds since the check began. Each row
    reaches the disk before the next measurement begins, so a check that is killed keeps its rows.
    """

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.rows = []
        self._begin = time.monotonic()
        self._jsonl = open(os.path.join(folder, "gpu_check.jsonl"), "a", encoding="utf-8")
        self._log = open(os.path.join(folder, "gpu_check.log"), "a", encoding="utf-8", errors="replace")
        self.add("run", "begins", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def add(self, phase, name, value, unit="", **more):
        """Adds a row. A number that is not finite becomes text, as JSON has no word for it."""
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        row = {"phase": phase, "name": name, "value": value, "unit": unit, **more,
               "at_s": round(time.monotonic() - self._begin, 2)}
        self.rows.append(row)
        self._jsonl.write(json.dumps(row) + "\n")
        self._jsonl.flush()
        os.fsync(self._jsonl.fileno())
        print(f"{phase:11} {name:52} {shown(value)} {unit}".rstrip(), flush=True)

    def log(self, text):
        """Keeps what a program printed, which may say why a phase failed."""
        self._log.write(text if text.endswith("\n") else text + "\n")
        self._log.flush()

    def close(self):
        """Closes the files. Nothing may be added afterwards."""
        self._jsonl.close()
        self._log.close()

    def path(self, name):
        """Returns the path of a file of this name among the results."""
        return os.path.join(self.folder, name)


def shown(value):
    """Returns a value as a table shows it."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(rows):
    """Returns the rows as lines, a heading per phase."""
    lines, phase = [], None
    width = max([len(row["name"]) for row in rows], default=0)
    for row in rows:
        if row["phase"] != phase:
            phase = row["phase"]
            lines += ["", phase]
        lines.append(f"  {row['name']:{width}}  {shown(row['value'])} {row['unit']}".rstrip())
    return "\n".join(lines[1:])
