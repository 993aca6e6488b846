"""Threads of a process held still, while its other threads run on: what a wedged scheduler looks like from outside.

By ptrace, so only of processes that this user may trace. One thread of the caller holds and lets go.
"""

import ctypes
import os
import time

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # __WALL: threads too

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def threads_named(pid, name):
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
            if file.read().strip() == name:
                found.append(int(thread))
    return found


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class HeldThreads:
    """PermissionError if they may not be held."""

    def __init__(self, threads):
        self._threads = list(threads)
        for thread in self._threads:
            _ptrace(PTRACE_SEIZE, thread)
            _ptrace(PTRACE_INTERRUPT, thread)
            os.waitpid(thread, WALL)

    def collect(self):
        """A held thread that was killed is not gone before its holder has seen it: call this until all have ended."""
        for thread in list(self._threads):
            try:
                _, status = os.waitpid(thread, WALL | os.WNOHANG)
            except ChildProcessError:
                self._threads.remove(thread)
                continue
            if os.WIFEXITED(status) and status != 0 or os.WIFSIGNALED(status):
                self._threads.remove(thread)

    def let_go(self):
        for thread in self._threads:
            _ptrace(PTRACE_DETACH, thread)
        self._threads = []

    def collect_until(self, ended, limit_s):
        end_s = time.monotonic() + limit_s
        while not ended() and time.monotonic() < end_s:
            self.collect()
            time.sleep(0.005)
