"""Runs a command ahead of everything else on the machine, and reports how long it took and how much it held.

    foreground.py [--nice N] [--cores 0] [--pin-children] [--first-line PATH] [--report PATH] -- COMMAND...

The kernel may group sessions (sched_autogroup), and niceness then counts only within a session. The command therefore
gets a session of its own, and the session gets the niceness, too. Where this is not allowed, the command runs as it is.

--cores          keeps the command and all that it starts on these cores
--pin-children   keeps the k-th program that the command starts on core k (forks of the command itself do not count)
--first-line     names a file that the command writes; the report then has the time of the first line
--report         writes JSON: seconds, first_line_seconds,
                 children: [{peak_bytes, anonymous_bytes, file_bytes, shared_bytes}]

The memory is that of the command's children, or of the command itself if it starts none. The program reads the memory
when a process starts and then ten times a second. The report has the last value of each kind of memory, which for the
peak is the highest one. The exit code is that of the command.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

POLL_SECONDS = 0.005
MEMORY_EVERY = 20  # polls
PR_SET_PDEATHSIG = 1
PF_FORKNOEXEC = 0x40


def come_forward(nice):
    """Puts this process, and all that it will start, before the rest. Does nothing where that is not allowed."""
    if nice == 0:
        return
    try:
        os.setsid()
    except PermissionError:
        pass  # the process leads a session already
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(nice))
    except OSError:
        pass
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        pass


def children_of(pid):
    children = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as listed:
                children += [int(child) for child in listed.read().split()]
    except OSError:
        pass  # the process has ended
    return sorted(children)


def has_forked_only(pid):
    """Returns whether the process still runs the program of its parent, or has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return bool(int(stat.read().rpartition(")")[2].split()[6]) & PF_FORKNOEXEC)
    except OSError:
        return True


def pin(pid, core):
    """Pins all present threads of a process to a core. A later thread follows the thread that starts it."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), {core})
    except OSError:
        pass


def memory_of(pid):
    """Returns the kinds of resident memory, or None if the process has ended."""
    names = {"VmHWM": "peak_bytes", "RssAnon": "anonymous_bytes", "RssFile": "file_bytes", "RssShmem": "shared_bytes"}
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return {name: int(fields[field].split()[0]) * 1024 for field, name in names.items()}
    except (OSError, KeyError, ValueError):  # a process that has ended has none
        return None


class Watch:
    """A Watch follows the processes of a command while the command runs."""

    def __init__(self, command, pin_children):
        self.command, self.pin_children = command, pin_children
        self.seen = {}  # memory by pid, in the order in which the processes started
        self.own = None  # the memory of the command itself
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        poll = 0
        while not self.over.wait(POLL_SECONDS):
            for pid in children_of(self.command.pid):
                if pid in self.seen or has_forked_only(pid):
                    continue
                if self.pin_children:
                    pin(pid, len(self.seen) % os.cpu_count())
                self.seen[pid] = memory_of(pid)
            if poll % MEMORY_EVERY == 0:
                self.read_memory()
            poll += 1

    def read_memory(self):
        self.own = memory_of(self.command.pid) or self.own
        for pid in self.seen:
            self.seen[pid] = memory_of(pid) or self.seen[pid]

    def end(self):
        self.over.set()
        self.thread.join()
        return [memory for memory in (self.seen.values() if self.seen else [self.own]) if memory is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--cores")
    parser.add_argument("--pin-children", action="store_true")
    parser.add_argument("--first-line")
    parser.add_argument("--report")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    come_forward(args.nice)
    if args.cores:
        os.sched_setaffinity(0, {int(core) for core in args.cores.split(",")})
    if not args.report and not args.pin_children:
        os.execvp(args.command[0], args.command)
    began, began_date = time.perf_counter(), time.time()
    libc = ctypes.CDLL(None)
    command = subprocess.Popen(args.command, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
    watch = Watch(command, args.pin_children)
    status = command.wait()
    seconds = time.perf_counter() - began
    report = {"seconds": seconds, "children": watch.end()}
    if args.first_line and os.path.exists(args.first_line):
        # The file of such a run has one line, so the time of the last write is the time of that line.
        report["first_line_seconds"] = os.stat(args.first_line).st_mtime - began_date
    if args.report:
        with open(args.report, "w", encoding="utf-8") as file:
            json.dump(report, file)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
