"""Tests `weir eval --outputs` in several processes: the rows of one process, and how a disturbed run ends."""

import array
import os
import signal
import unittest

from tests.processes import weir_jobs


def floats_of(path):
    """Returns the header of a .npy file of real numbers, and the numbers."""
    with open(path, "rb") as file:
        content = file.read()
    begin = 10 + int.from_bytes(content[8:10], "little")
    numbers = array.array("f")
    numbers.frombytes(content[begin:])
    return content[10:begin].decode(), numbers


class Outputs(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job()
        self.place.train("--steps", "3", "--save", "w.safetensors")

    def start(self, folder, *arguments):
        return self.place.start("--init", "w.safetensors", "--outputs", folder, "--output", "logits", *arguments,
                                verb="eval")

    def logits(self, folder, *arguments):
        ended = self.start(folder, *arguments).wait()
        self.assertEqual(ended.code, 0, ended.err)
        self.assertIn("logits.npy f32[", ended.out)
        return floats_of(self.place.path(os.path.join(folder, "logits.npy")))

    def test_every_layout_in_two_processes_gives_the_rows_of_one_device(self):
        header, alone = self.logits("alone")
        self.assertGreater(len(alone), 0)
        for number, mesh in enumerate(("tp=2", "pp=2", "dp=2", "dp=2,tp=2")):
            with self.subTest(mesh=mesh):
                spread_header, spread = self.logits(f"spread{number}", "--mesh", mesh, "--processes", "2")
                self.assertEqual(spread_header, header)
                self.assertEqual(len(spread), len(alone))
                self.assertLess(max(abs(a - b) for a, b in zip(alone, spread)), 1e-4)
        self.assertFalse(os.path.exists(self.place.path("weir-logs")))

    def test_an_interrupted_run_writes_no_file(self):
        job = self.start("interrupted", "--mesh", "tp=2", "--processes", "2")
        job.wait_for_workers(2)
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        files = self.place.path("interrupted")
        if ended.code == 130:  # else the run was faster than the signal
            self.assertEqual(os.listdir(files) if os.path.exists(files) else [], [])
        else:
            self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual(self.place.processes(), [])

    def test_an_evaluation_stays_in_one_process(self):
        ended = self.place.start("--init", "w.safetensors", "--processes", "2", verb="eval").wait()
        self.assertEqual(ended.code, 65)
        self.assertIn("W0622", ended.err)


if __name__ == "__main__":
    unittest.main()
