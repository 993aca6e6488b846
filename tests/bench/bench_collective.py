"""The section `collective` of tools/bench compares boxings between two processes with Open MPI and PyTorch's gloo.

All parties start once and wait on pipes. The bench asks the parties in turn: ours, theirs, ours, theirs. The two
answers of a pair are therefore milliseconds apart. Between questions the parties sleep. Every process except gloo's has
one core for all its threads. The bench asks Open MPI twice: over its own transports (the default on one host,
point-to-point layer ob1), and over UCX with the lanes that Weir has.
"""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from tests.bench import bench_programs, bench_report

ANSWER_SECONDS = 120
COMPILE_SECONDS = 300
CLOSE_SECONDS = 10
SIZES = [4, 64, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
LATENCY_BELOW = 64 << 10  # bytes: the rows of smaller tensors are times, the other rows are speeds
TENSOR = 4 << 20
# An entry is a boxing, its operation, and the share of the tensor's bytes that each process sends: the closed form, for
# two ranks.
BOXINGS = [("P->S", "reduce_scatter", 0.5), ("S->B", "all_gather", 0.5), ("S->S", "all_to_all", 0.25),
           ("to another device", "move", 1.0), ("B->S", "slice", 0), ("S->P", "split_to_partial", 0),
           ("B->P", "broadcast_to_partial", 0)]
MPI_FLAGS = {
    "Open MPI shm": ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"],
    "Open MPI tcp": ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"],
    "Open MPI over UCX, shm": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any",
                               "-x", "UCX_TLS=sysv,cma,self"],
    "Open MPI over UCX, tcp": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any",
                               "-x", "UCX_TLS=tcp,self", "-x", "UCX_NET_DEVICES=lo"],
}
THREE_TIMES, ALMOST = 3.0, 0.9  # times as fast as gloo, and as Open MPI


class Party:
    """A Party is two processes that answer how long an operation takes."""

    def __init__(self, name, command_of):
        """Starts the commands that `command_of(folder)` returns: one command, or one per process."""
        self.name = name
        self.folder = tempfile.TemporaryDirectory(prefix="weir_bench_")
        path = pathlib.Path(self.folder.name)
        for pipe in ("commands.0", "commands.1", "answers"):
            os.mkfifo(path / pipe)
        # Each pipe is open in both directions, so that opening waits for nobody. The processes see the end when this
        # process ends.
        self.commands = [os.open(path / f"commands.{rank}", os.O_RDWR) for rank in (0, 1)]
        self.answers = os.open(path / "answers", os.O_RDWR | os.O_NONBLOCK)
        self.programs = [bench_programs.Program(command) for command in command_of(path)]

    def seconds(self, operation, size, count):
        """Returns the seconds of one operation, on average over `count` operations."""
        for pipe in self.commands:
            os.write(pipe, f"{operation} {size} {count}\n".encode())
        text, deadline = b"", time.monotonic() + ANSWER_SECONDS
        while not text.endswith(b"\n"):
            try:
                text += os.read(self.answers, 64)
            except BlockingIOError:
                time.sleep(0.0005)
            if time.monotonic() > deadline or any(program.process.poll() is not None for program in self.programs):
                raise self.silent(f"{operation} of {size} bytes")
        return float(text) / count

    def silent(self, question):
        """Returns the error that no answer has come to a question."""
        brief = f"gave no answer to {question}"
        parts = [f"{' '.join(program.command)}, whose processes then were:\n{program.described()}\n{program.printed()}"
                 for program in self.programs]
        return bench_programs.ProgramError(brief, "\n".join([f"{self.name} {brief}", *parts]))

    def count(self, operation, size, lasting):
        """Returns how often the operation fits into `lasting` seconds."""
        self.seconds(operation, size, 1)
        few = self.seconds(operation, size, 8)
        return max(8, min(100_000, int(lasting / few)))

    def close(self):
        for pipe in self.commands:
            os.write(pipe, b"end\n")
        with contextlib.ExitStack() as ends:
            for program in self.programs:
                ends.enter_context(program)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.process.wait(CLOSE_SECONDS)
        for pipe in [*self.commands, self.answers]:
            os.close(pipe)
        self.folder.cleanup()


def compile_mpi(cache):
    """Compiles the program that asks Open MPI. Returns its path, or None with a note where Open MPI cannot be used.

    Debian's MPICH and openmpi-bin bring a compiler command without the headers that the command needs.
    """
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / "mpi_collective"
    source = pathlib.Path(__file__).parent / "mpi_collective.cc"
    missing = [command for command in ("mpicxx", "mpirun") if not shutil.which(command)]
    if not missing:
        with bench_programs.Program(["mpicxx", "-std=c++20", "-O2", "-o", program, source]) as compiler:
            if compiler.wait(COMPILE_SECONDS) == 0:
                return program
            why = next((line for line in compiler.errors().splitlines() if "error" in line), "mpicxx fails")
    else:
        why = f"there is no {missing[0]}"
    print(f"collective: skips the comparison with Open MPI ({why}). "
          "Try: tools/bench collective --install", file=sys.stderr)
    return None


class Parties:
    """Parties is a context manager that holds all parties that can be asked."""

    def __init__(self, forward, ours, mpi, torch):
        """Puts `forward` before each command, so that the command runs ahead of others.

        `mpi` and `torch` are None where the program is absent.
        """
        self.forward, self.mpi, self.torch = forward, mpi, torch
        self.parties = {}
        self.peers = {}
        for lanes in ("shm", "tcp"):
            for checksum in ("checksum", "plain"):
                self.add(f"{lanes} {checksum}", lambda folder, l=lanes, c=checksum: [[ours, folder, l, c]])
        for name, flags in MPI_FLAGS.items() if mpi else []:
            self.add_peer(name, lambda folder, f=flags: [
                ["mpirun", "--allow-run-as-root", "-np", 2, "--bind-to", "core",
                 # Programs of Open MPI that start at once would race for one folder of the user.
                 "--mca", "orte_tmpdir_base", folder] + f + [mpi, folder]])
        if torch:
            script = pathlib.Path(__file__).parent / "torch_collective.py"
            lo = ["env", "GLOO_SOCKET_IFNAME=lo"]
            self.add_peer("gloo", lambda folder: [lo + [torch, script, folder, rank] for rank in (0, 1)])

    def add(self, name, command_of):
        self.parties[name] = Party(name, lambda folder: [self.forward + command for command in command_of(folder)])

    def add_peer(self, name, command_of):
        self.add(name, command_of)
        self.peers[name] = bench_programs.Peer(name)

    def has(self, name):
        return name in self.parties

    def ask(self, name, run):
        """Returns what `run(party)` returns, or None if the party is a peer that fails now or has failed before."""
        party = self.parties[name]
        return self.peers[name].sample(lambda: run(party)) if name in self.peers else run(party)

    def checked(self, name, row):
        """Returns a row that compares with the named party, without its figures if the party has failed."""
        return self.peers[name].checked(row) if name in self.peers else row

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for party in self.parties.values():
            party.close()

    def in_turn(self, names, operation, size, pairs, lasting):
        """Asks the named parties one after another, `pairs` times, and returns {name: [seconds]}."""
        counts = {name: self.ask(name, lambda party: party.count(operation, size, lasting)) for name in names}
        samples = {name: [] for name in names}
        for _ in range(pairs):
            for name in names:
                taken = self.ask(name, lambda party, n=name: party.seconds(operation, size, counts[n]))
                if taken is not None:
                    samples[name].append(taken)
        return samples


def bytes_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def row(what, size, moved, ours, against, theirs, at_least, note):
    """Returns a row that shows a time if the tensor is small, and otherwise a speed.

    `moved` is the number of bytes that each process sends. `at_least` is the required speed of ours as a multiple
    of theirs.
    """
    if size < LATENCY_BELOW or not moved:
        limit = None if at_least is None else 1 / at_least
        other = f"{moved / statistics.median(ours) / 1e9:.3f} GB/s" if moved else ""
        made = bench_report.row(what, "us", [s * 1e6 for s in ours], against, [s * 1e6 for s in theirs], "lower",
                                limit, other)
    else:
        other = f"{statistics.median(ours) * 1e6:,.0f} us"
        made = bench_report.row(what, "GB/s", [moved / s / 1e9 for s in ours], against,
                                [moved / s / 1e9 for s in theirs], "higher", at_least, other)
    made["note"] = "; ".join(part for part in (made["note"], note) if part)
    return made


def all_reduce_rows(parties, sizes, pairs, lasting):
    rows = []
    for lanes in ("shm", "tcp"):
        ours = [f"{lanes} checksum", f"{lanes} plain"]
        others = [(f"Open MPI {lanes}", ALMOST), (f"Open MPI over UCX, {lanes}", ALMOST), ("gloo", THREE_TIMES)]
        others = [(name, limit) for name, limit in others if parties.has(name)]
        for size in sizes:
            taken = parties.in_turn(ours + [name for name, _ in others], "all_reduce", size, pairs, lasting)
            for checksum in ours:
                what = f"all-reduce of {bytes_text(size)}, {lanes}{'' if 'checksum' in checksum else ', no checksum'}"
                for name, limit in others or [("", None)]:
                    rows.append(parties.checked(name, row(what, size, size, taken[checksum], name, taken.get(name, []),
                                                          limit, "")))
    return rows


def boxing_rows(parties, pairs, lasting):
    rows = []
    for lanes in ("shm", "tcp"):
        for what, operation, share in BOXINGS:
            if not share and lanes == "tcp":
                continue  # nothing crosses
            names = ([f"{lanes} checksum", f"{lanes} plain"]
                     + [name for name in (f"Open MPI {lanes}",) if share and parties.has(name)])
            taken = parties.in_turn(names, operation, TENSOR, pairs, lasting)
            against, theirs = (names[2], taken[names[2]]) if len(names) > 2 else ("", [])
            note = ("Open MPI's blocks lie in one piece" if against and operation == "all_to_all"
                    else "" if share else "nothing crosses")
            for checksum in names[:2] if share else names[:1]:
                text = f"{what} of {bytes_text(TENSOR)}, {lanes}{'' if 'checksum' in checksum else ', no checksum'}"
                rows.append(parties.checked(against, row(text, TENSOR, share * TENSOR, taken[checksum], against, theirs,
                                                         None, note)))
    return rows


def collective_rows(bench, cache):
    """Returns the rows of the section. `bench` is the Bench of tools/bench, and `cache` is a folder to compile in."""
    if not bench.torch:
        print("collective: skips the comparison with gloo: no interpreter here can import torch. "
              "Try: tools/bench collective --install", file=sys.stderr)
    forward = [sys.executable, bench.root / "tests/bench/foreground.py", "--nice", bench.args.nice, "--"]
    pairs, lasting, sizes = bench.sized((11, 0.1, SIZES), (5, 0.03, SIZES), (1, 0.001, SIZES[:2]))
    with Parties(forward, bench.binaries / "tests/bench/collective_bench", compile_mpi(cache), bench.torch) as parties:
        return all_reduce_rows(parties, sizes, pairs, lasting) + boxing_rows(parties, pairs, lasting)
