"""Tests jobs whose input files somebody changes.

While a job trains on a text, somebody writes into it. The job ends and names the file, in whatever process the file is
read. The new bytes are also out of range. actors/engine/feed_test.cc tests the effect of such values.

Between two attempts of a run, somebody puts another file in the place of an input. The run ends and names the file, if
it reads the file again.
"""

import os
import signal
import unittest

from tests.processes import weir_jobs

BAD_INPUT = 66
INTERRUPTED = 130


class ChangedData(weir_jobs.JobCase):
    def expect_the_file_named(self, *arguments):
        self.place.write_text()
        # A table of 128 rows has room for ASCII, which the file holds when the job opens it.
        self.write_job("--steps", "1000000", "--vocab", "128", "--data", "text.txt")
        job = self.place.start(*arguments)
        job.wait_for_step()
        with open(self.place.path("text.txt"), "r+b") as file:
            size = len(file.read())
            file.seek(0)
            file.write(b"\xe9" * size)
        ended = job.wait()
        self.assertEqual(ended.code, BAD_INPUT, ended.err)
        said = " ".join(ended.err.split())
        self.assertRegex(said, r"W0985 at text.txt: expected the \d+ bytes that were there when the job began")
        self.assertNotIn("fault of weir", said)

    def test_in_one_process(self):
        self.expect_the_file_named("--mesh", "dp=2,tp=2")

    def test_in_two_processes(self):
        self.expect_the_file_named("--mesh", "dp=2,tp=2", "--processes", "2")


class ReplacedInputs(weir_jobs.JobCase):
    """Running processes read the old file to its end. Only processes that start anew open the new one."""

    def setUp(self):
        super().setUp()
        self.place.write_text()

    def start(self, *options):
        # The job ends only if the test ends it.
        self.write_job("--steps", "1000000", "--min-lr", "0.003", "--data", "text.txt")
        return self.place.start("--mesh", "dp=2", "--processes", "2", *options)

    def replace(self, name, contents):
        with open(self.place.path("new"), "wb") as file:
            file.write(contents)
        os.rename(self.place.path("new"), self.place.path(name))

    def kill_one(self, job):
        os.kill(job.wait_for_workers(2)["1"], signal.SIGKILL)

    def expect_refused(self, job, name, found):
        ended = job.wait()
        self.assertEqual(ended.code, BAD_INPUT, ended.err)
        said = " ".join(ended.err.split())
        self.assertRegex(said, rf"W0968 at (job\.textproto:\d+, )?{name}: expected the file as the run began: .* "
                               rf"\(\d+ bytes, checksum "
                               rf"[0-9a-f]{{8}}\), last changed .* UTC; found {found}")
        self.assertEqual(self.place.processes(), [])

    def expect_goes_on(self, job, text):
        """Expects that the job prints the text, and that a signal ends it."""
        job.wait_for_text(text)
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)
        self.assertNotIn("W0968", ended.err)

    def test_a_restart_does_not_train_on_another_text(self):
        job = self.start("--on-failure", "restart")
        job.wait_for_step()
        text = self.place.bytes_of("text.txt")
        self.replace("text.txt", text[:-1] + b"!")
        self.kill_one(job)
        self.expect_refused(job, "text.txt", "another file in its place: ")

    def test_a_recovery_does_not_train_on_another_text(self):
        job = self.start("--on-failure", "elastic")
        job.wait_for_step()
        self.replace("text.txt", self.place.bytes_of("text.txt") + b"!")
        self.kill_one(job)
        self.expect_refused(job, "text.txt", "another file in its place: ")

    def test_a_copy_of_the_text_in_its_place_is_the_same_text(self):
        for on_failure, text in (("restart", "all processes are ready again"), ("elastic", "a step is done again")):
            with self.subTest(on_failure):
                job = self.start("--on-failure", on_failure)
                job.wait_for_step()
                self.replace("text.txt", self.place.bytes_of("text.txt"))
                self.kill_one(job)
                self.expect_goes_on(job, text)

    def test_a_mesh_does_not_grow_onto_another_text(self):
        job = self.start("--on-failure", "elastic", "--max-restarts", "0", "--restart-window", "1", "--min-devices",
                         "1", "--grow-after", "15")
        job.wait_for_step()
        self.kill_one(job)
        job.wait_for_text("a step is done again")
        self.replace("text.txt", self.place.bytes_of("text.txt") + b"!")
        job.wait_for_text("the mesh does not grow now: W0968 at text.txt")
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)
        self.assertNotIn("the mesh has grown", ended.err)

    def test_other_weights_of_init_end_a_run_that_begins_with_them_again(self):
        self.write_job("--steps", "1", "--data", "text.txt")
        self.place.train("--save", "w.st")
        job = self.start("--on-failure", "restart", "--init", "w.st")
        job.wait_for_step()
        self.replace("w.st", b"no weights")
        self.kill_one(job)
        self.expect_refused(job, "w.st", "another file in its place: ")

    def test_weights_of_init_do_not_count_once_there_is_a_checkpoint(self):
        self.write_job("--steps", "1", "--data", "text.txt")
        self.place.train("--save", "w.st")
        job = self.start("--on-failure", "restart", "--init", "w.st", "--checkpoint", "c/", "--checkpoint-every", "5")
        job.wait_for_text("checkpoint of step 5 written")
        self.replace("w.st", b"no weights")
        self.kill_one(job)
        self.expect_goes_on(job, "all processes are ready again")

    def test_weights_of_init_do_not_count_in_a_recovery_after_a_restart_from_a_checkpoint(self):
        self.write_job("--steps", "1", "--data", "text.txt")
        self.place.train("--save", "w.st")
        # Nobody keeps states in memory, so each recovery loads a checkpoint. A recovery does not read the shards before
        # the ranks load them, so a damaged one ends the recovery, and all processes start again.
        job = self.start("--on-failure", "elastic", "--set", "training.gradient_delay=1", "--init", "w.st",
                         "--checkpoint", "c/")
        first = self.ask_for_checkpoint(job, 1)
        second = self.ask_for_checkpoint(job, 2)
        self.assertNotEqual(first, second)
        self.place.flip_last_bit(f"c/{second}/rank-00000.safetensors")
        self.kill_one(job)
        job.wait_for_text("all processes are ready again")
        self.assertIn(f"the job goes on from c/{first}\n", job.errors())
        self.replace("w.st", b"no weights")
        self.kill_one(job)
        # The run has written none since the restart.
        self.expect_goes_on(job, f"all states come from c/{first}")


if __name__ == "__main__":
    unittest.main()
