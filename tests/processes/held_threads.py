"""Holds threads of a process still while its other threads run on. From outside, this looks like a wedged scheduler.

The module uses ptrace, so it can hold only processes that this user may trace. One thread of the caller holds the
threads and lets them go.
"""

import ctypes
import os
import time

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # __WALL: wait for threads, too

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
    """HeldThreads are threads that stand still. The constructor raises PermissionError if they may not be held."""

    def __init__(self, threads):
        self._threads = list(threads)
        for thread in self._threads:
            _ptrace(PTRACE_SEIZE, thread)
            _ptrace(PTRACE_INTERRUPT, thread)
            os.waitpid(thread, WALL)

    def collect(self):
        """Collects held threads that have ended. Call this until all threads have ended.

        A held thread that was killed is gone only when its holder has seen the end.
        """
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
