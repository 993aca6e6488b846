"""Runs a command ahead of everything else on the machine, and says how long it took and what it held.

    foreground.py [--nice N] [--cores 0] [--pin-children] [--first-line PATH] [--report PATH] -- COMMAND...

Priority: niceness counts only within a session where the kernel groups sessions (sched_autogroup), so the command
gets a session of its own, and the session the niceness too. Where that is not allowed it runs as it is.
--cores          the command and all that it starts stay on these cores
--pin-children   the k-th program that the command starts stays on core k (forks of the command itself do not count)
--first-line     a file that the command writes; when its first line came is part of the report
--report         JSON: seconds, first_line_seconds, children: [{peak_bytes, anonymous_bytes, file_bytes, shared_bytes}]

Memory is that of the command's children, or its own if it starts none, read ten times a second: the highest seen of
the peak, and the last seen of the kinds. Exits as the command does.
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
    """This process, and all it will start, before the rest; quietly not where that is not allowed."""
    if nice == 0:
        return
    try:
        os.setsid()
    except PermissionError:
        pass  # leads a session already
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
        pass  # gone
    return sorted(children)


def has_forked_only(pid):
    """Whether the process still runs the program of the one that made it, or has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return bool(int(stat.read().rpartition(")")[2].split()[6]) & PF_FORKNOEXEC)
    except OSError:
        return True


def pin(pid, core):
    """All threads there are; those that come later follow the one that starts them."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), {core})
    except OSError:
        pass


def memory_of(pid):
    """The kinds of resident memory, or None when the process has ended."""
    names = {"VmHWM": "peak_bytes", "RssAnon": "anonymous_bytes", "RssFile": "file_bytes", "RssShmem": "shared_bytes"}
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return {name: int(fields[field].split()[0]) * 1024 for field, name in names.items()}
    except (OSError, KeyError, ValueError):  # a process that has ended has none
        return None


class Watch:
    """Follows the processes of a command while it runs."""

    def __init__(self, command, pin_children):
        self.command, self.pin_children = command, pin_children
        self.seen = {}  # memory by pid, in the order of their start
        self.own = None  # the command's
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
                self.seen[pid] = None
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
        # Of a run whose file has one line: when it was last written.
        report["first_line_seconds"] = os.stat(args.first_line).st_mtime - began_date
    if args.report:
        with open(args.report, "w", encoding="utf-8") as file:
            json.dump(report, file)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
