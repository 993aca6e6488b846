"""Starts the programs that tools/bench measures, each with a time limit.

A program that does not end within its limit is killed with all processes that it started. The error names the program,
says what each of its processes waited for, and holds what the program printed.
"""

import collections
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

# Every process of a program inherits this variable, which holds a word for each Program around the process. A process
# can therefore be found after its parent has ended, and in whichever session it is.
MARK = "WEIR_BENCH_PROGRAMS"
SHOWN_CHARACTERS = 4000  # of each output, from its end
NUMBERS = itertools.count()


class ProgramError(Exception):
    """A ProgramError says that a program failed. `brief` is a clause for a note, such as "did not end in 100 s"."""

    def __init__(self, brief, message):
        super().__init__(message)
        self.brief = brief


class Program:
    """A Program is a command that runs. What the command prints goes to files, which no process waits for.

    A Program is a context manager that kills what remains of the command.
    """

    def __init__(self, command, environment=None, cwd=None):
        self.command = [str(part) for part in command]
        self.mark = f"{os.getpid()}.{next(NUMBERS)}"
        environment = dict(os.environ if environment is None else environment)
        environment[MARK] = f"{environment.get(MARK, '')} {self.mark}".strip()
        self.files = [tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2)]
        self.process = subprocess.Popen(self.command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.files[0], stderr=self.files[1])

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.kill()
        for file in self.files:
            file.close()

    def wait(self, limit_s):
        """Waits for the end, and returns the exit code. A program that takes longer than `limit_s` is an error."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise self.overdue(limit_s) from None

    def overdue(self, limit_s):
        """Kills the program, and returns the error that says where the program was."""
        waited = self.described()
        self.kill()
        brief = f"did not end in {limit_s:g} s"
        return ProgramError(brief, f"{' '.join(self.command)} {brief}. Its processes then were:\n{waited}\n"
                                   f"{self.printed()}")

    def finish(self, limit_s):
        """Returns what the program prints to standard output and to standard error. A failure is a ProgramError."""
        code = self.wait(limit_s)
        if code != 0:
            brief = f"ended with {code}"
            raise ProgramError(brief, f"{' '.join(self.command)} {brief}\n{self.printed()}")
        return self.output(), self.errors()

    def output(self):
        return self._text(0)

    def errors(self):
        return self._text(1)

    def _text(self, index):
        # The program may still write at its own place in the same open file, so the place must not move.
        path = f"/proc/self/fd/{self.files[index].fileno()}"
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")

    def printed(self):
        """Returns the last part of both outputs with a title each."""
        parts = []
        for title, text in (("standard output", self.output()), ("standard error", self.errors())):
            parts.append(f"-- {title}, {len(text)} characters\n{text[-SHOWN_CHARACTERS:].rstrip()}")
        return "\n".join(parts)

    def processes(self):
        """Returns the ids of all processes of the program that still run."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                variables = pathlib.Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # the process has ended, or belongs to somebody else
            marks = [value for value in variables if value.startswith(MARK.encode() + b"=")]
            if marks and self.mark.encode() in marks[0].partition(b"=")[2].split():
                found.append(int(name))
        return sorted(found)

    def described(self):
        """Returns a line for each process that still runs."""
        return "\n".join(process_line(pid) for pid in self.processes()) or "(none)"

    def kill(self):
        """Kills every process of the program that still runs."""
        while running := [pid for pid in self.processes() if state_of(pid) not in ("Z", "")]:
            for pid in running:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        self.process.wait()


def stat_fields(folder):
    """Returns the fields of a `stat` file of /proc that follow the name of the program, or [] after the end."""
    try:
        return (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid):
    """Returns the letter of the state of a process, such as "Z" after its end, or "" if there is no such process."""
    return next(iter(stat_fields(pathlib.Path(f"/proc/{pid}"))), "")


def process_line(pid):
    """Says what a process is, how much processor time it has had, and in which kernel functions its threads wait."""
    folder = pathlib.Path(f"/proc/{pid}")
    fields = stat_fields(folder)
    if not fields:
        return f"  {pid}: has ended"
    waits = collections.Counter()
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        for thread in (folder / "task").iterdir():
            state = next(iter(stat_fields(thread)), "")
            where = (thread / "wchan").read_text(encoding="ascii")
            waits["runs" if state == "R" else where if where not in ("", "0") else f"state {state}"] += 1
    except OSError:
        return f"  {pid}: has ended"
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    threads = ", ".join(f"{count} x {where}" for where, count in waits.most_common())
    return f"  {pid}, child of {fields[1]}, {seconds:.1f} s of processor time, threads: {threads}: {words}"


class Peer:
    """A Peer is what Weir is compared with. After its first failure the Peer is left out, and rows say why."""

    def __init__(self, name):
        self.name = name
        self.failure = ""

    def sample(self, run):
        """Returns what `run()` returns, or None if a program of the peer fails now or has failed before."""
        if self.failure:
            return None
        try:
            return run()
        except ProgramError as error:
            print(f"tools/bench: {error}", file=sys.stderr)
            self.failure = f"{self.name} {error.brief}"
            return None

    def collect(self, samples, run):
        """Appends what `run()` returns, unless the peer fails now or has failed before."""
        sample = self.sample(run)
        if sample is not None:
            samples.append(sample)

    def checked(self, row):
        """Returns the row as it is, or without the peer's figures and with a note if the peer has failed."""
        if not self.failure:
            return row
        note = "; ".join(part for part in (row["note"], self.failure) if part)
        return {**{name: value for name, value in row.items() if name != "limit"}, "theirs": [], "note": note}
