"""Causes faults in the processes of a job: connections that are cut, and processes that nothing ends.

A fault that needs more rights than the test has raises PermissionError.
"""

import contextlib
import ctypes
import os
import re
import socket
import struct

from tests.processes import census
from tests.processes import held_threads

PIDFD_GETFD = 438
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def _fail():
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))


def _sockets_of(pid):
    """Returns {inode: descriptor} of the sockets of a process."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if match:
            found[int(match.group(1))] = int(name)
    return found


def connections_between(one, other):
    """Returns the descriptors of process `one` that are TCP connections to process `other`."""
    mine, theirs = _sockets_of(one), _sockets_of(other)
    sockets = census.tcp_sockets()
    ports = {s.port for s in sockets if s.inode in theirs and s.state != census.LISTENING}
    return [mine[s.inode] for s in sockets if s.inode in mine and s.peer_port in ports and s.state != census.LISTENING]


def reset(pid, descriptor):
    """Cuts a TCP connection of another process, as `ss -K` does. Both ends see a reset."""
    pidfd = os.pidfd_open(pid)
    try:
        copy = _libc.syscall(PIDFD_GETFD, pidfd, descriptor, 0)
        if copy < 0:
            _fail()
        # A connect to nowhere is a disconnect, and TCP disconnects with a reset.
        nowhere = struct.pack("=H14x", socket.AF_UNSPEC)
        result = _libc.connect(copy, nowhere, len(nowhere))
        os.close(copy)
        if result != 0:
            _fail()
    finally:
        os.close(pidfd)


class Unkillable:
    """An Unkillable is a process that SIGKILL does not end while this object holds the threads of the process."""

    def __init__(self, pid):
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        self._held = held_threads.HeldThreads(threads)

    def let_go(self, ended, limit_s):
        """Lets the kill take effect, and waits until ended() is true."""
        self._held.collect_until(ended, limit_s)


@contextlib.contextmanager
def frozen_control_group(pid):
    """Keeps the process in a frozen control group of its own."""
    root = "/sys/fs/cgroup/freezer"
    if not os.path.isdir(root):
        raise PermissionError("no freezer of version 1 here")
    folder = os.path.join(root, f"weir-test-{os.getpid()}")
    os.mkdir(folder)
    try:
        _write(f"{folder}/cgroup.procs", str(pid))
        _write(f"{folder}/freezer.state", "FROZEN")
        yield
    finally:
        _write(f"{folder}/freezer.state", "THAWED")
        with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
            processes = file.read().split()
        for process in processes:
            with contextlib.suppress(OSError):
                _write(f"{root}/cgroup.procs", process)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
