"""Kills workers of jobs that start again on failure. The jobs end with the bits of a run without failure.

WEIR_TEST_SEED repeats the choices of a run. WEIR_RESTARTS sets how many workers the test of random kills kills. This
command kills 200:
WEIR_RESTARTS=200 WEIR=bazel-bin/tools/weir python3 -m tests.processes.restart_test
"""

import os
import random
import re
import signal
import statistics
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

KILLS = int(os.environ.get("WEIR_RESTARTS", "4"))
MESH = ("--mesh", "dp=2,tp=2", "--processes", "4")
STEPS = "400"
RESTARTS = ("--on-failure", "restart")
READY = r"all processes are ready again, (\d+\.\d+) s after the failure"
KILLED = 128 + signal.SIGKILL


class Restart(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job("--steps", STEPS)
        self.place.train(*MESH, "--save", "good.st", "--metrics", "good.jsonl")

    def kill_when(self, job, seen, rank="1"):
        """Kills the worker of that rank once the job has printed `seen`. Returns the worker's process number."""
        job.wait_for_text(seen)
        pid = job.wait_for_workers(4)[rank]
        os.kill(pid, signal.SIGKILL)
        return pid

    def expect_good(self, ended, restarts_max):
        """Expects the end of a run without failure. Some of the kills may have come after the last step."""
        self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual(ended.err.count("first failure: "), len(re.findall(READY, ended.err)), ended.err)
        self.assertLessEqual(ended.err.count("first failure: "), restarts_max)
        self.assertTrue(self.place.bytes_of("weights.st") == self.place.bytes_of("good.st"), "the weights differ")
        # A step that was done again has two rows, which say the same.
        good = {row["step"]: row for row in self.place.metrics("good.jsonl")}
        rows = self.place.metrics("metrics.jsonl")
        self.assertEqual([row for row in rows if row != good[row["step"]]], [])
        self.assertEqual({row["step"] for row in rows}, set(good))
        self.assertEqual(self.place.processes(), [])

    def start(self, *options):
        return self.place.start(*MESH, "--save", "weights.st", "--metrics", "metrics.jsonl", *RESTARTS, *options)

    def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5")
        self.kill_when(job, "step 10/")
        job.wait_for_text("restart 1 after step ")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertRegex(ended.err, r"restart 1 after step \d+: the job goes on from checkpoints/step-")
        self.assertIn("first failure: rank 1 (pid ", ended.err)

    def test_without_a_checkpoint_the_job_begins_again(self):
        job = self.start()
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertIn("--on-failure restart without --checkpoint starts the job from its beginning", ended.err)
        self.assertIn("the job goes on from its beginning", ended.err)

    def test_random_kills(self):
        seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={seed}")
        chance = random.Random(seed)
        self.write_job("--steps", str(40 * (KILLS + 2)))
        self.place.train(*MESH, "--save", "good.st", "--metrics", "good.jsonl")
        memory, sockets = census.SharedMemory(), census.Sockets()
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "3", "--keep", "2",
                         "--max-restarts", str(KILLS), "--transport", chance.choice(("shm", "tcp")))
        job.wait_for_workers(4)
        kills = 0
        for number in range(KILLS):
            # The moment is in the loading of the ranks, or among the steps.
            if number > 0:
                weir_jobs.until("a restart", lambda: f"restart {number} after step " in job.errors() or
                                job.starter.poll() is not None)
            weir_jobs.until("workers", lambda: len(job.workers()) == 4 or job.starter.poll() is not None)
            time.sleep(chance.uniform(0, 1.5))
            sockets.see(job.pids())
            workers = sorted(job.workers())
            if job.starter.poll() is not None or not workers:
                break
            try:
                os.kill(chance.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                break
            kills += 1
        ended = job.wait()
        self.expect_good(ended, kills)
        seconds = [float(text) for text in re.findall(READY, ended.err)]
        print(f"{kills} kills; ready again after {statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (most)")
        self.assertEqual(memory.leftovers() + sockets.leftovers() + os.listdir(self.place.temporary), [])
        self.assertEqual(sorted(name for name in os.listdir(self.place.path("checkpoints")) if "step" in name)[2:], [])

    def test_a_limit_ends_the_job_with_the_code_of_the_failure(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5", "--max-restarts", "0")
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertIn("the job does not start again: the job failed 1 time within 3600 s, and --max-restarts is 0",
                      ended.err)

    def test_what_cannot_start_again_is_refused_first(self):
        for verb in ("check", "train"):
            with self.subTest(verb=verb), self.assertRaisesRegex(AssertionError, "W0756"):
                self.place.run(verb, "job.textproto", *RESTARTS)


if __name__ == "__main__":
    unittest.main()
