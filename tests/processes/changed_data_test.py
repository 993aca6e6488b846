"""Data that changes while a job trains: a value out of range ends the job with its place, in whatever process it is read."""

import unittest

from tests.processes import weir_jobs

BAD_JOB = 65


class ChangedData(unittest.TestCase):
    def setUp(self):
        self.place = weir_jobs.Place()
        self.addCleanup(self.place.close)

    def expect_out_of_range(self, *arguments):
        self.place.write_text()
        # A table of 128 rows: room for ASCII, which the file holds when the job opens it.
        self.place.write_job(*weir_jobs.SMALL, "--steps", "1000000", "--vocab", "128", "--data", "text.txt")
        job = self.place.start(*arguments)
        job.wait_for_step()
        with open(self.place.path("text.txt"), "r+b") as file:
            size = len(file.read())
            file.seek(0)
            file.write(b"\xe9" * size)
        ended = job.wait()
        self.assertEqual(ended.code, BAD_JOB, ended.err)
        said = " ".join(ended.err.split())
        self.assertRegex(said, r"W0906 at (worker \d, )?rank \d, input (tokens|targets) of the model, step \d+, micro-batch [01], sample \d+, position \[\d+\]: "
                               r"expected a value from 0 to 127, an index along dimension vocab of")
        self.assertIn("found 233", said)
        self.assertNotIn("fault of weir", said)

    def test_in_one_process(self):
        self.expect_out_of_range("--mesh", "dp=2,tp=2")

    def test_in_two_processes(self):
        self.expect_out_of_range("--mesh", "dp=2,tp=2", "--processes", "2")


if __name__ == "__main__":
    unittest.main()
