"""Tests a job that trains on a text while somebody writes into this text.

The job ends and names the file, in whatever process the file is read. The new bytes are also out of range.
actors/engine/feed_test.cc tests the effect of such values.
"""

import unittest

from tests.processes import weir_jobs

BAD_INPUT = 66


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


if __name__ == "__main__":
    unittest.main()
