"""Kills workers of jobs whose other processes live on. The jobs end with the bits of a run without failure.

WEIR_TEST_SEED repeats the choices of a run. WEIR_KILLS sets how many workers the test of random kills kills. This
command kills 100:
WEIR_KILLS=100 WEIR=bazel-bin/tools/weir python3 -m tests.processes.elastic_test
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

KILLS = int(os.environ.get("WEIR_KILLS", "4"))
DONE = r"a step is done again, (\d+\.\d+) s after the failure: (.*)"
KILLED = 128 + signal.SIGKILL


class Elastic(weir_jobs.FailureCase):
    STEPS = str(30 * (KILLS + 2))
    FLAGS = ("--on-failure", "elastic")

    def expect_good(self, ended):
        """Expects the end of a run without failure. Returns (seconds, how) of each recovery that led to a step."""
        self.expect_results_of_no_failure(ended)
        return [(float(seconds), how) for seconds, how in re.findall(DONE, ended.err)]

    def kill(self, job, *ranks):
        """Kills the workers of these ranks at once. Returns {rank: pid} of all workers before."""
        workers = job.wait_for_workers(4)
        for rank in ranks:
            os.kill(workers[rank], signal.SIGKILL)
        return workers

    def test_the_others_live_on_and_give_the_lost_states(self):
        job = self.start()
        job.wait_for_step()
        before = self.kill(job, "1")
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.assertIn("states from the memory of rank", self.expect_good(ended)[0][1])
        self.assertIn("; 1 recovery\n", ended.out)
        self.assertIn("first failure: rank 1 (pid ", ended.err)

    def test_without_a_replica_the_others_live_on_with_the_last_checkpoint(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "20")
        job.wait_for_text("checkpoint of step 20 written")
        before = self.kill(job, "1", "3")
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in ("0", "2") if before[rank] != after[rank]], [])
        self.assertIn("all states come from checkpoints/step-", self.expect_good(job.wait())[-1][1])

    def test_a_new_process_that_ends_at_once_is_replaced_at_once(self):
        job = self.start()
        job.wait_for_step()
        lost = self.kill(job, "1")["1"]
        again = weir_jobs.until("a new process", lambda: [pid for pid, rank in job.workers().items()
                                                          if rank == "1" and pid != lost])
        os.kill(again[0], signal.SIGKILL)  # the process has said no hello yet
        recoveries = self.expect_good(job.wait())
        # The job waits 30 s for a hello of a process that lives.
        self.assertLess(recoveries[-1][0], 20)

    def test_random_kills(self):
        seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={seed}")
        chance = random.Random(seed)
        memory, sockets = census.SharedMemory(), census.Sockets()
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "30", "--keep", "2",
                         "--max-restarts", str(KILLS), "--transport", chance.choice(("shm", "tcp")))
        job.wait_for_step()
        kills, last, seen = 0, None, 0

        def news():
            text = job.errors()
            return text.count("a step is done again") + text.count("all processes are ready again")

        while kills < KILLS:
            # Some kills come while an epoch begins.
            if kills > 0 and chance.random() < 0.6:
                weir_jobs.until("a recovery", lambda count=seen: news() > count or job.starter.poll() is not None)
            seen = news()
            time.sleep(chance.uniform(0, 0.4))
            sockets.see(job.pids())
            # The same failure of one rank twice at the same place would end the job.
            workers = sorted(pid for pid, rank in job.workers().items() if rank != last)
            if job.starter.poll() is not None or not workers:
                break
            pid = chance.choice(workers)
            last = job.workers().get(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            kills += 1
        ended = job.wait()
        seconds = [seconds for seconds, _ in self.expect_good(ended)]
        restarts = ended.err.count("WARNING: restart ")
        self.assertLessEqual(ended.err.count("WARNING: recovery ") + restarts, 2 * kills, ended.err)
        if seconds:
            print(f"{kills} kills, {restarts} restarts; a step is done again after "
                  f"{statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (most)")
        self.assertEqual(memory.leftovers() + sockets.leftovers() + os.listdir(self.place.temporary), [])

    def test_a_limit_ends_the_job_with_the_code_of_the_failure(self):
        job = self.start("--max-restarts", "0")
        job.wait_for_step()
        self.kill(job, "2")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertIn("the job does not start again: the job failed 1 time within 3600 s, and --max-restarts is 0",
                      ended.err)


class Buddies(weir_jobs.FailureCase):
    """Nobody else holds the states of a stage, and the job writes no checkpoint."""

    MESH = ("--mesh", "pp=2", "--processes", "2")
    STEPS = "60"
    FLAGS = ("--on-failure", "elastic", "--buddy-every", "5")

    def test_a_stage_comes_back_from_the_memory_of_its_buddy(self):
        job = self.start()
        job.wait_for_text("its buddy keeps what has no replica")
        before = job.wait_for_workers(2)
        os.kill(before["1"], signal.SIGKILL)
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(2)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.expect_results_of_no_failure(ended)
        self.assertIn("from the memory of rank 0 (buddy)", re.findall(DONE, ended.err)[0][1])


if __name__ == "__main__":
    unittest.main()
