"""Tests a job whose processes live, but whose actors do not act. The job ends and says for whom every rank waits."""

import os
import re
import unittest

from tests.processes import census
from tests.processes import held_threads
from tests.processes import weir_jobs

NO_PROGRESS = 70
ACTORS = "caf.actor"  # the name of the threads that run actors


class Stuck(weir_jobs.JobCase):
    def hold(self, pid):
        try:
            return held_threads.HeldThreads(held_threads.threads_named(pid, ACTORS))
        except PermissionError:
            self.skipTest("this user may not hold the threads of other processes")

    def expect_stuck(self, ended, after):
        self.assertEqual(ended.code, NO_PROGRESS, ended.err)
        self.assertIn(f"  first failure: the job: stuck: no actor of any rank has acted for {after} s\n", ended.err)

    def expect_culprit(self, ended):
        """Checks that the report names rank 1.

        The ranks that wait depend on the moment at which rank 1 is held: rank 1 may be the last rank that has acts left
        in the step.
        """
        for rank in range(4):
            self.assertRegex(ended.err, rf"(?m)^    \| rank {rank}\b")
        self.assertNotIn("\n[rank", ended.err, "what all actors wait for is for the logs")
        # Only rank 1 cannot look at its actors any more.
        self.assertEqual(re.findall(r"(?m)^    \| no account came from (.*)$", ended.err), ["rank 1"])
        waiting = [rank for rank in (0, 2, 3)
                   if f"\n    | rank {rank} has done all acts it was asked for\n" not in ended.err]
        if not waiting:
            self.assertIn("\n    | all other ranks have done their acts and wait for rank 1\n", ended.err)
            return
        # The waits of all ranks together lead to the rank that hangs.
        self.assertRegex(ended.err, r"(?m)^    \| in the end \d+ of \d+ actors wait for (actor '.*' on )?rank 1, "
                                    r"which could not say")
        logs = self.place.path("weir-logs")
        newest = os.path.join(logs, max(os.listdir(logs)))
        for rank in waiting:
            self.assertRegex(ended.err, rf"(?m)^    \| rank {rank} actor '.*', held by (actor '.*' on )?rank \d$")
            with open(os.path.join(newest, f"rank-{rank}.log"), encoding="utf-8") as file:
                self.assertRegex(file.read(), rf"\n  rank {rank} actor '[^']+': \d+ of \d+ acts, waits for ")

    def test_ranks_that_wait_for_one_whose_actors_hang_say_so(self):
        self.write_job("--steps", "1000000")
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                memory = census.SharedMemory()
                job = self.place.start("--mesh", "pp=4", "--processes", "4", "--stuck-after", "2",
                                       "--transport", transport)
                job.wait_for_step()
                held = self.hold(job.wait_for_workers(4)["1"])
                held.collect_until(lambda job=job: job.starter.poll() is not None, weir_jobs.LIMIT_S)
                ended = job.wait()
                self.expect_stuck(ended, "2.0")
                self.expect_culprit(ended)
                self.assertEqual(self.place.processes(), [])
                self.assertEqual(memory.leftovers(), [])

    def test_one_kernel_that_takes_longer_than_allowed_counts_as_stuck_and_is_named(self):
        # One core needs about a second for a product of two matrices of 4096 x 4096.
        self.place.write_job("--layers", "1", "--hidden", "4096", "--ffn", "4096", "--batch", "8192", "--steps", "2",
                             model="mlp")
        ended = self.place.start("--mesh", "dp=2", "--processes", "2", "--threads", "1", "--stuck-after", "0.3",
                                 "--heartbeat", "0.05", "--dead-after", "20").wait()
        self.expect_stuck(ended, "0.3")
        self.assertRegex(ended.err, r"(?m)^    \| rank [01]: actor '\w+ .*', act \d+, for \d+\.\d s$")

    def test_a_job_that_is_slow_but_moves_is_not_stuck(self):
        self.write_job("--steps", "300")
        ended = self.place.train("--mesh", "dp=2", "--processes", "2", "--stuck-after", "2", "--heartbeat", "0.5",
                                 "--dead-after", "4")
        self.assertIn("300 steps", ended.out)


if __name__ == "__main__":
    unittest.main()
