"""Tests that a worker that is stopped for good is soon named as frozen, and that the job ends.

A worker that is merely kept from running is not named as frozen. WEIR_LOAD_S sets how long the test of false alarms
trains on a loaded machine. This command trains for an hour:
WEIR_LOAD_S=3600 WEIR=bazel-bin/tools/weir python3 -m tests.processes.freeze_test
"""

import os
import signal
import statistics
import subprocess
import sys
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

LOAD_S = float(os.environ.get("WEIR_LOAD_S", "20"))
LOAD_PROCESSES = 3 * os.cpu_count()
SURROUNDINGS = 69
QUICK = ("--heartbeat", "0.1", "--dead-after", "0.5")
QUICK_S = 0.7
DEFAULT_S = 5.0
MANY_STEPS = "1000000"


class Freeze(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job("--steps", MANY_STEPS)

    def freeze(self, rank, *options):
        """Stops a worker. Returns the seconds until the job names this worker, and until no process is left."""
        memory, sockets = census.SharedMemory(), census.Sockets()
        job = self.place.start("--mesh", "dp=2,tp=2", "--processes", "4", *options)
        job.wait_for_step()
        workers = job.wait_for_workers(4)
        sockets.see(job.pids())
        os.kill(workers[rank], signal.SIGSTOP)
        begin_s = time.monotonic()
        named_s = job.wait_for_text(f"rank {rank} (pid {workers[rank]}) is frozen: ") - begin_s
        ended = job.wait()
        weir_jobs.until("the end of all processes", lambda: not self.place.processes())
        ended_s = time.monotonic() - begin_s
        found_rank, pid, what = ended.first_failure()
        self.assertEqual((found_rank, pid), (rank, workers[rank]), ended.err)
        self.assertRegex(what, r"^frozen: no heartbeat for \d+\.\d s; its process is stopped \(state T\)$")
        self.assertEqual(ended.code, SURROUNDINGS)
        self.assertEqual(memory.leftovers() + sockets.leftovers() + os.listdir(self.place.temporary), [])
        return named_s, ended_s

    def test_with_short_timings_a_frozen_worker_is_named_in_under_700_ms(self):
        times = []
        for rank in ("0", "1", "2", "3"):
            for transport in ("shm", "tcp"):
                with self.subTest(rank=rank, transport=transport):
                    named_s, ended_s = self.freeze(rank, "--transport", transport, *QUICK)
                    print(f"rank {rank}, {transport}: named after {named_s:.3f} s, all ended after {ended_s:.3f} s",
                          flush=True)
                    times.append(named_s)
        # The job may name single workers late because of the machine.
        self.assertLess(statistics.median(times), QUICK_S)
        self.assertLess(max(times), DEFAULT_S)

    def test_by_default_a_frozen_worker_is_named_in_under_5_s(self):
        named_s, ended_s = self.freeze("1")
        print(f"named after {named_s:.3f} s, all ended after {ended_s:.3f} s", flush=True)
        self.assertLess(named_s, DEFAULT_S)

    def train_under_load(self, *options):
        """Trains beside busy loops, for LOAD_S at most. Returns how the job ended and the step that it had reached."""
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD_PROCESSES)]
        try:
            job = self.place.start("--mesh", "dp=2,tp=2", "--processes", "4", "--metrics", "metrics.jsonl", *options)
            job.wait_for_step()
            try:
                job.starter.wait(LOAD_S)
            except subprocess.TimeoutExpired:
                job.starter.send_signal(signal.SIGTERM)
            ended = job.wait()
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        return ended, self.place.metrics("metrics.jsonl")[-1]["step"]

    def test_a_loaded_machine_is_no_false_alarm(self):
        for options in ((), QUICK):
            with self.subTest(options=options):
                self.place.remove("metrics.jsonl")
                ended, step = self.train_under_load(*options)
                print(f"{LOAD_S:.0f} s beside {LOAD_PROCESSES} busy loops, {' '.join(options) or 'default timings'}: "
                      f"exit code {ended.code} after step {step}", flush=True)
                self.assertEqual(ended.code, 130, ended.err)


if __name__ == "__main__":
    unittest.main()
