"""Kills processes of a job at random moments, from before the first worker to after the last.

The job ends soon, names the process that was killed, and leaves nothing behind. This command does 200 kills:
WEIR_KILLS=200 WEIR=bazel-bin/tools/weir python3 -m tests.processes.kill_test
WEIR_TEST_SEED repeats the choices of a run. The moments repeat as far as the machine repeats itself.
"""

import os
import random
import signal
import statistics
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

KILLS = int(os.environ.get("WEIR_KILLS", "40"))
PROCESSES = 4
TRIALS_MAX = 3 * KILLS  # some kills come too late
END_S = 2.0  # from the kill to the end of the last process, on a machine that runs this test without delay
LEFT_S = 60  # the kernel may close the sockets of a process later than the process ends
KILLED = 128 + signal.SIGKILL
ARGUMENTS = ("--mesh", "dp=2,tp=2", "--processes", str(PROCESSES), "--checkpoint", "checkpoint.st",
             "--checkpoint-every", "10", "--save", "weights.st", "--metrics", "metrics.jsonl",
             "--trace", "trace.pftrace")
OUTPUTS = {"job.textproto", "checkpoint.st", "weights.st", "metrics.jsonl", "trace.pftrace", "weir-logs"}


class Trial:
    """A Trial is one job and the kill that the test does to it."""

    def __init__(self, test, place, transport):
        self.test, self.place = test, place
        self.memory = census.SharedMemory()
        self.sockets = census.Sockets()
        for name in set(os.listdir(place.folder)) - {"job.textproto", "weir-logs"}:
            place.remove(name)
        self.job = place.start(*ARGUMENTS, "--transport", transport)

    def workers(self):
        """Returns [(pid, rank)] of the workers that exist by now.

        A process that is not yet `weir worker` counts by its place.
        """
        named = self.job.workers()
        pids = sorted(census.children_of(self.job.starter.pid))
        return [(pid, named.get(pid, str(place))) for place, pid in enumerate(pids)]

    def kill(self, pid):
        """Kills a process, and returns the time of the kill, or None if there was no process to kill."""
        self.sockets.see(self.job.pids())
        if not census.is_running(pid):
            return None
        now_s = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return now_s

    def wait_for_all(self, begin_s):
        """Returns the seconds from begin_s until no process is left, and for how many of them the machine was late."""
        lateness = weir_jobs.Lateness()
        # The starter is a child of this test, and a zombie until the test waits for it.
        while self.job.starter.poll() is None or self.place.processes():
            if time.monotonic() > begin_s + weir_jobs.LIMIT_S:
                self.test.fail(f"still there after {weir_jobs.LIMIT_S} s: "
                               f"{[(p, census.arguments_of(p)) for p in self.place.processes()]}\n"
                               f"{self.job.errors()}")
            lateness.nap()
        return time.monotonic() - begin_s, lateness.total_s

    def leftovers(self):
        left = self.memory.leftovers() + self.sockets.leftovers()
        left += [f"temporary file {name}" for name in os.listdir(self.place.temporary)]
        return left + [f"file {name}" for name in sorted(set(os.listdir(self.place.folder)) - OUTPUTS)]


class Kill(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job("--steps", "30")

    def expect_nothing_left(self, trial):
        try:
            weir_jobs.until("nothing to be left", lambda: not trial.leftovers(), LEFT_S)
        except AssertionError:
            self.fail(f"left behind: {trial.leftovers()}")

    def test_whoever_is_killed_whenever_the_job_ends_soon_names_it_and_leaves_nothing(self):
        seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={seed}", flush=True)
        chance = random.Random(seed)
        lengths = {}
        for transport in ("shm", "tcp"):
            trial = Trial(self, self.place, transport)
            self.assertEqual(trial.job.wait().code, 0)
            lengths[transport] = time.monotonic() - trial.job.started_s
            self.expect_nothing_left(trial)
        weights = self.place.bytes_of("weights.st")
        times, counts = [], {"starter": 0, "worker": 0, "too late": 0}
        for number in range(TRIALS_MAX):
            if counts["starter"] + counts["worker"] == KILLS:
                break
            transport = chance.choice(("shm", "tcp"))
            moment_s = chance.uniform(0, lengths[transport])
            choice = chance.randrange(PROCESSES + 1)
            with self.subTest(number=number, transport=transport, moment=round(moment_s, 3), choice=choice):
                trial = Trial(self, self.place, transport)
                while time.monotonic() < trial.job.started_s + moment_s:
                    time.sleep(0.001)
                workers = trial.workers()
                # The victim is the starter, too, if the chosen worker is not there (yet).
                victim, rank = workers[choice] if choice < len(workers) else (trial.job.starter.pid, None)
                killed_s = trial.kill(victim)
                took_s, late_s = trial.wait_for_all(killed_s or time.monotonic())
                ended = trial.job.wait()
                if killed_s is None or ended.code == 0:
                    counts["too late"] += 1
                    lengths[transport] = min(lengths[transport], moment_s + took_s)
                    self.assertEqual(ended.code, 0, ended.err)
                    self.assertTrue(self.place.bytes_of("weights.st") == weights)
                else:
                    counts["starter" if rank is None else "worker"] += 1
                    # The machine may be slower by now. The longer length keeps the end of the job within reach.
                    lengths[transport] = max(lengths[transport], 1.1 * moment_s)
                    times.append(took_s)
                    self.assertEqual(ended.code, KILLED, ended.err)
                    self.assertLess(took_s - late_s, END_S, ended.err)
                    if rank is not None:
                        self.assertEqual(ended.first_failure(), (rank, victim, "killed by SIGKILL (9)"), ended.err)
                self.expect_nothing_left(trial)
        print(f"{KILLS} kills: {counts}; to the end of the last process: median {statistics.median(times):.3f} s, "
              f"longest {max(times):.3f} s", flush=True)
        self.assertEqual(counts["starter"] + counts["worker"], KILLS)


if __name__ == "__main__":
    unittest.main()
