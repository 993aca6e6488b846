"""Tests a worker that pauses. The others wait at their registers without growing and without working.

The answer stays the same. The work of a worker at the moment of its pause must not matter, so many repetitions tell
more than one, best beside a busy loop:
for i in $(seq 100); do WEIR=bazel-bin/tools/weir python3 -m tests.processes.pause_test || break; done
"""

import os
import signal
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

PAUSE_S = 6
SETTLE_S = 2  # for so long the others work no more once they have used the credits that they had
GROWTH_MAX = 0.05
CPU_MAX = 0.05  # of one core, for all waiting processes together
STEPS = "400"


class Pause(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job("--steps", STEPS)

    @staticmethod
    def cpu_share(pids, seconds):
        """Returns the share of one core that these processes have together for so long."""
        begin_s, cpu_s = time.monotonic(), sum(census.cpu_seconds(pid) for pid in pids)
        time.sleep(seconds)
        return (sum(census.cpu_seconds(pid) for pid in pids) - cpu_s) / (time.monotonic() - begin_s)

    def check(self, transport, mesh, processes=4):
        arguments = ("--mesh", mesh, "--metrics", "metrics.jsonl")
        self.place.train(*arguments, "--save", "one.st")
        losses = self.place.metrics("metrics.jsonl")
        job = self.place.start(*arguments, "--save", "many.st", "--processes", str(processes),
                               "--transport", transport, "--dead-after", "600", "--stuck-after", "600")
        job.wait_for_step()
        workers = job.wait_for_workers(processes)
        paused = workers["2"]
        os.kill(paused, signal.SIGSTOP)
        waiting = [job.starter.pid, *(pid for pid in workers.values() if pid != paused)]
        weir_jobs.until("the others to have used their credits", lambda: self.cpu_share(waiting, SETTLE_S) < CPU_MAX)
        memory = {pid: census.resident_bytes(pid) for pid in waiting}
        cpu_s = sum(census.cpu_seconds(pid) for pid in waiting)
        begin_s = time.monotonic()
        peaks = dict(memory)
        while time.monotonic() < begin_s + PAUSE_S:
            time.sleep(0.1)
            for pid in waiting:
                peaks[pid] = max(peaks[pid], census.resident_bytes(pid))
        cpu_share = (sum(census.cpu_seconds(pid) for pid in waiting) - cpu_s) / (time.monotonic() - begin_s)
        self.assertIsNone(job.starter.poll(), "the job did not wait")
        os.kill(paused, signal.SIGCONT)
        self.assertEqual(job.wait().code, 0)
        growth = max(peaks[pid] / memory[pid] - 1 for pid in waiting)
        print(f"{transport} {mesh}: memory grew by {growth:.2%} at most, "
              f"{max(memory.values()) / 2**20:.1f} MiB at most; "
              f"CPU {cpu_share:.2%} of a core in {len(waiting)} processes", flush=True)
        self.assertLess(growth, GROWTH_MAX)
        self.assertLess(cpu_share, CPU_MAX)
        self.assertEqual(self.place.metrics("metrics.jsonl"), losses)
        self.assertTrue(self.place.bytes_of("many.st") == self.place.bytes_of("one.st"))

    def test_data_parallel_workers_wait_for_one_that_pauses_over_shared_memory(self):
        self.check("shm", "dp=4")

    def test_data_parallel_workers_wait_for_one_that_pauses_over_tcp(self):
        self.check("tcp", "dp=4")

    def test_a_pipeline_waits_for_a_stage_that_pauses_over_shared_memory(self):
        self.check("shm", "pp=4")

    def test_a_pipeline_waits_for_a_stage_that_pauses_over_tcp(self):
        self.check("tcp", "pp=4")

    def test_three_workers_wait_for_one_that_pauses_over_shared_memory(self):
        self.check("shm", "dp=3", 3)

    def test_three_workers_wait_for_one_that_pauses_over_tcp(self):
        self.check("tcp", "dp=3", 3)

    def test_six_workers_in_two_stages_wait_for_one_that_pauses_over_shared_memory(self):
        self.check("shm", "dp=3,pp=2", 6)

    def test_six_workers_in_two_stages_wait_for_one_that_pauses_over_tcp(self):
        self.check("tcp", "dp=3,pp=2", 6)


if __name__ == "__main__":
    unittest.main()
