"""Runs `weir train` on hosts that a test has made, from a folder and a copy of the program that nobody else uses."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tests.processes import census

PROGRAM = os.path.abspath(os.environ.get("WEIR", "tools/weir"))
LIMIT_S = 300  # for anything that should end by itself
GONE_S = 60  # for the last processes of a job that has ended
MANY_STEPS = "1000000"
QUICK = ("--heartbeat", "0.3", "--dead-after", "1.5")
GPT = ("--layers", "2", "--hidden", "32", "--heads", "4", "--vocab", "256", "--sequence", "16", "--batch", "8")


class HostJobs(unittest.TestCase):
    """The base of tests that train one small GPT on hosts."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.program = shutil.copy(PROGRAM, os.path.join(cls.folder, "weir"))
        zoo = subprocess.run([cls.program, "zoo", "gpt", *GPT], capture_output=True, text=True, check=True)
        cls.path("job.textproto", zoo.stdout)

    @classmethod
    def path(cls, name, text=None):
        path = os.path.join(cls.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def start(self, *arguments, before=(), environment=None):
        """Starts `weir train` behind the words `before`, such as mpirun and its flags."""
        job = subprocess.Popen([*before, self.program, "train", "job.textproto", *arguments], cwd=self.folder,
                               env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, job)
        return job

    def train(self, *arguments, before=(), environment=None):
        """Returns the exit code and what the job printed."""
        job = self.start(*arguments, before=before, environment=environment)
        text, _ = job.communicate(timeout=LIMIT_S)
        return job.returncode, text

    def await_step(self, job):
        """Waits for the first step, and returns what the job printed up to there."""
        return self.await_text(job, "step 1/")

    def await_text(self, job, wanted):
        """Waits for a text, and returns what the job printed up to the end of its line."""
        said = ""
        while wanted not in said:
            line = job.stdout.readline()
            self.assertTrue(line, said)
            said += line
        return said

    def end(self, job):
        """Ends what a test that has failed leaves behind."""
        if job.poll() is None:
            job.kill()
        job.wait()
        job.stdout.close()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def expect_end(self, job, code, *texts):
        """Waits for the end of a job, which must come with the code, and must have printed the patterns."""
        text, _ = job.communicate(timeout=LIMIT_S)
        print(text[-1500:], flush=True)
        for wanted in texts:
            self.assertRegex(unwrapped(text), wanted)
        self.assertEqual(job.returncode, code, text)
        self.expect_nothing_left()

    def processes(self, verb=None):
        """Returns the pids of what runs of this test's program; with a verb, of those that run the verb."""
        pids = census.processes_of(self.program, self.program)
        return [pid for pid in pids if verb is None or census.arguments_of(pid)[1:2] == [verb]]

    def kill(self, verb):
        """Kills one process that runs the verb."""
        os.kill(self.processes(verb)[0], signal.SIGKILL)

    def expect_nothing_left(self):
        end = time.monotonic() + GONE_S
        while left := self.processes():
            self.assertLess(time.monotonic(), end, f"processes are left: {left}")
            time.sleep(0.05)


def unwrapped(text):
    return re.sub(r"\s+", " ", text)
