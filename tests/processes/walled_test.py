"""Tests a job on devices whose memory the host cannot touch.

The job trains in processes, evaluates, saves, resumes, and gives the same bytes as a job on CPUs.
"""

import unittest

from tests.processes import weir_jobs

MESH = ("--mesh", "dp=2,tp=2", "--processes", "2")
WALLED = ("--set", "runtime.device=walled")
QUEUES = (*WALLED, "--set", "runtime.device_queues=4", "--set", "runtime.device_depth=64")


class Walled(weir_jobs.JobCase):
    def test_a_job_in_two_processes_is_saved_and_resumed_to_the_same_bytes(self):
        self.place.write_text()
        self.write_job("--steps", "20", "--zero", "1", "--data", "text.txt", "--held-out", "0.2", "--eval-every", "5",
                       "--min-lr", "0.003")
        for transport in ("shm", "tcp"):
            with self.subTest(transport=transport):
                lanes = ("--transport", transport)
                cpu = self.place.train(*MESH, *lanes, "--save", "cpu.st")
                self.place.train(*MESH, *lanes, *WALLED, "--steps", "10", "--checkpoint", "half.st")
                for device in (WALLED, QUEUES):
                    walled = self.place.train(*MESH, *lanes, *device, "--resume", "half.st", "--save", "walled.st")
                    loss_of = lambda ended: ended.out.splitlines()[-1].split(";")[0]  # the rest tells times
                    self.assertEqual(loss_of(walled), loss_of(cpu))
                    self.assertTrue(self.place.bytes_of("walled.st") == self.place.bytes_of("cpu.st"))

    def test_values_that_are_not_finite_are_found_and_named(self):
        self.write_job("--steps", "20")
        found = []
        for device in (WALLED, QUEUES):
            ended = self.place.start("--mesh", "dp=2", *device, "--set", "training.schedule.learning_rate=1e30").wait()
            self.assertEqual(ended.code, 3, ended.err)
            found.append(" ".join(ended.err.split()).partition("first not finite:")[2])
        self.assertTrue(found[0])
        self.assertEqual(found[1], found[0])

    def test_a_device_that_there_is_not_is_refused_with_the_nearest(self):
        self.write_job("--steps", "1")
        ended = self.place.start("--set", "runtime.device=cpus").wait()
        self.assertEqual(ended.code, 65, ended.err)
        said = " ".join(ended.err.split())
        self.assertIn("W0529 at --set runtime.device=cpus, runtime.device: expected a kind of device: auto, cpu, cuda, "
                      "walled, cuda-emulated; found \"cpus\"", said)
        self.assertIn("Try: cpu", said)

    def test_more_queues_than_a_device_has_are_refused(self):
        self.write_job("--steps", "1")
        for field, device, limit in (("device_queues", (), 1), ("device_depth", (), 1), ("device_queues", WALLED, 4)):
            ended = self.place.start(*device, "--set", f"runtime.{field}={limit + 1}").wait()
            self.assertEqual(ended.code, 65, ended.err)
            self.assertIn(f"runtime.{field}: expected at most {limit} on a device", " ".join(ended.err.split()))


if __name__ == "__main__":
    unittest.main()
