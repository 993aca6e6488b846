"""Tests that the verbs which only look at a job or a trace give up their rights before they work on it."""

import fcntl
import os
import re
import subprocess
import time
import unittest

from tests.processes import weir_jobs

PATIENCE_S = 60


def full_pipe():
    """Returns the two ends of a pipe that takes no more bytes, so that a writer waits."""
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"\n" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write_end, True)
    return read_end, write_end


def filters_of(pid):
    """Returns how many filters of system calls a process has; None if this kernel has no filters."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        count = re.search(r"^Seccomp_filters:\s(\d+)$", file.read(), re.MULTILINE)
    return int(count.group(1)) if count else None


class ConfinedVerbs(weir_jobs.JobCase):
    def expect_confined(self, *arguments):
        """Starts the verb with an output that takes nothing, and looks at its rights while it waits to print."""
        read_end, write_end = full_pipe()
        with open(self.place.path("said.txt"), "wb") as said:
            verb = subprocess.Popen([self.place.program, *arguments], cwd=self.place.folder, env=self.place.environment,
                                    stdin=subprocess.DEVNULL, stdout=write_end, stderr=said)
        os.close(write_end)
        end = time.monotonic() + PATIENCE_S
        while filters_of(verb.pid) <= filters_of("self") and time.monotonic() < end and verb.poll() is None:
            time.sleep(0.01)
        filters = filters_of(verb.pid)
        os.close(read_end)
        verb.kill()
        verb.wait()
        with open(self.place.path("said.txt"), encoding="utf-8") as said:
            self.assertGreater(filters, filters_of("self"), said.read())

    def test_check_plan_sim_and_trace_report_are_confined(self):
        if filters_of("self") is None:
            self.skipTest("NOT PROVED: this kernel does not filter system calls")
        self.write_job("--steps", "2")
        self.place.train("--trace", "t.pftrace")
        for arguments in (["check", "job.textproto"], ["plan", "job.textproto"], ["sim", "job.textproto"],
                          ["trace", "report", "t.pftrace"]):
            with self.subTest(verb=arguments[0]):
                self.expect_confined(*arguments)


if __name__ == "__main__":
    unittest.main()
