"""Tests two jobs of one folder at the same time.

Each job has its own answer and its own logs, and has none of the troubles of the other job.
"""

import os
import signal
import unittest

from tests.processes import weir_jobs

MESH = ("--mesh", "dp=2,tp=2", "--processes", "2")


class TwoJobs(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        for name, seed in (("a", "1"), ("b", "2")):
            self.place.write_job(*weir_jobs.SMALL, "--steps", "200", "--seed", seed, job=f"{name}.textproto")
            self.place.train("--mesh", "dp=2,tp=2", "--save", f"{name}.alone.st", job=f"{name}.textproto")

    def start(self, name, transport):
        return self.place.start(*MESH, "--transport", transport, "--save", f"{name}.st", job=f"{name}.textproto")

    def expect_own_answer(self, name):
        self.assertTrue(self.place.bytes_of(f"{name}.st") == self.place.bytes_of(f"{name}.alone.st"), name)

    def test_two_jobs_at_once_each_give_the_bits_they_give_alone(self):
        for transports in (("shm", "shm"), ("tcp", "tcp"), ("shm", "tcp")):
            with self.subTest(transports=transports):
                jobs = [self.start(name, transport) for name, transport in zip("ab", transports)]
                for job in jobs:
                    self.assertEqual(job.wait().code, 0)
                for name in "ab":
                    self.expect_own_answer(name)
                self.assertFalse(os.path.exists(self.place.path("weir-logs")),
                                 "jobs that end well and print nothing leave no logs")

    def test_a_job_whose_neighbour_is_killed_goes_on(self):
        for transport in ("shm", "tcp"):
            for victim in ("worker", "starter"):
                with self.subTest(transport=transport, victim=victim):
                    doomed, other = self.start("a", transport), self.start("b", transport)
                    doomed.wait_for_step()
                    pid = doomed.wait_for_workers(2)["2-3"] if victim == "worker" else doomed.starter.pid
                    os.kill(pid, signal.SIGKILL)
                    self.assertEqual(doomed.wait().code, 128 + signal.SIGKILL)
                    self.assertEqual(other.wait().code, 0)
                    self.expect_own_answer("b")

    def test_the_same_job_twice_at_once_gives_one_answer(self):
        jobs = [self.place.start(*MESH, "--save", f"{copy}.st", job="a.textproto") for copy in ("first", "second")]
        for job in jobs:
            self.assertEqual(job.wait().code, 0)
        for copy in ("first", "second"):
            self.assertTrue(self.place.bytes_of(f"{copy}.st") == self.place.bytes_of("a.alone.st"))


if __name__ == "__main__":
    unittest.main()
