"""Runs `weir train` as a user sees it: starts it in a folder of its own, looks at it, disturbs it and waits for it.

The program is a copy that nobody else runs, so that the tests can find all processes of a job by their program.
"""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from tests.processes import census

PROGRAM = os.path.abspath(os.environ.get("WEIR", "tools/weir"))
LIMIT_S = 300  # for anything that should end by itself
LOOK_S = 0.005  # between two looks at other processes
# A process that is held back runs for RUNS_S and then stands still for STANDS_S. It then has less of a core than a busy
# machine leaves the others.
RUNS_S, STANDS_S = 0.03, 0.5

# SMALL is a small model in the proportions of tests/training/layout_matrix_test.cc.
SMALL = ["--layers", "4", "--hidden", "32", "--heads", "4", "--ffn", "64", "--sequence", "16", "--batch", "12",
         "--micro-batches", "2", "--lr", "0.003", "--warmup", "3"]


def seed():
    """Returns WEIR_TEST_SEED, or a seed that is new each time. The caller prints the seed."""
    return int(os.environ.get("WEIR_TEST_SEED", time.time_ns() % 1_000_000))


def until(what, holds, limit_s=LIMIT_S):
    """Waits until holds() is true, and returns its result."""
    end = time.monotonic() + limit_s
    while True:
        result = holds()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(LOOK_S)


def hold_back(pid):
    """Lets a process stand still and then run for a moment. A caller that repeats this makes the process slow."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STANDS_S)
    os.kill(pid, signal.SIGCONT)
    time.sleep(RUNS_S)


class Lateness:
    """A Lateness is the time by which a loaded machine prolongs the naps of this process."""

    def __init__(self):
        self.total_s = 0.0

    def nap(self):
        begin_s = time.monotonic()
        time.sleep(LOOK_S)
        late_s = time.monotonic() - begin_s - LOOK_S
        if late_s > LOOK_S:
            self.total_s += late_s


@dataclasses.dataclass
class Ended:
    """An Ended is a job that has ended."""

    code: int  # as in a shell: 128 + signal if a signal ended the job
    out: str
    err: str

    def first_failure(self):
        """Returns (ranks, pid, what happened) of the first failure in the report, or None."""
        match = re.search(r"^  first failure: (?:ranks? (\S+) \(pid (\d+)\)|the job): (.*)$", self.err, re.MULTILINE)
        return (match.group(1), int(match.group(2) or 0), match.group(3)) if match else None


class Job:
    """A Job is a running `weir train`, or another verb. The processes of a Job end with it."""

    def __init__(self, place, arguments, job="job.textproto", verb="train"):
        self._place = place
        self._out = tempfile.TemporaryFile("w+", dir=place.records)
        self._err = tempfile.TemporaryFile("w+", dir=place.records)
        self.started_s = time.monotonic()
        self.starter = subprocess.Popen([place.program, verb, job, *arguments], cwd=place.folder,
                                        env=place.environment, stdin=subprocess.DEVNULL, stdout=self._out,
                                        stderr=self._err)

    def workers(self):
        """Returns {pid: ranks} of the workers that run by now, with ranks such as "2-3"."""
        found = {}
        for pid in census.children_of(self.starter.pid):
            words = census.arguments_of(pid)
            if "worker" in words[1:3]:  # behind the program, or behind a shell and its script
                found[pid] = words[words.index("worker") + 1].split()[1]  # "rank 1", "ranks 2-3"
        return found

    def pids(self):
        return [self.starter.pid, *census.children_of(self.starter.pid)]

    def errors(self):
        return self._text(self._err)

    def wait_for_text(self, text, limit_s=LIMIT_S):
        """Waits until the job has printed the text to its standard error, and returns the time."""

        def seen():
            return text in self.errors() or self.starter.poll() is not None

        until(f"'{text}'", seen, limit_s)
        now_s = time.monotonic()
        if text not in self.errors():
            raise AssertionError(f"the job ended without '{text}':\n{self.errors()}")
        return now_s

    def wait_for_workers(self, count):
        """Waits until `count` workers run, and returns {ranks: pid}."""

        def all_there():
            if self.starter.poll() is not None:
                raise AssertionError(f"the job has ended:\n{self.errors()}")
            workers = self.workers()
            return {ranks: pid for pid, ranks in workers.items()} if len(workers) == count else None

        return until(f"{count} workers", all_there)

    def stop_new_worker(self, old):
        """Kills a worker, and returns the pid of the next one of its ranks, which has stopped before its hello."""
        known = self.workers()
        self._place.stop_next_worker(known[old])
        os.kill(old, signal.SIGKILL)

        def find():
            if self.starter.poll() is not None:
                raise AssertionError(f"the job has ended:\n{self.errors()}")
            return [pid for pid, ranks in self.workers().items()
                    if ranks == known[old] and pid not in known and census.is_stopped(pid)]

        return until("a new process that has stopped", find)[0]

    def wait_for_step(self):
        """Waits until the job has done its first step, and returns while the job trains."""
        self.wait_for_text("step 1/")

    def wait(self, limit_s=LIMIT_S):
        try:
            code = self.starter.wait(limit_s)
        except subprocess.TimeoutExpired:
            errors = self.errors()
            self.end()
            raise AssertionError(f"the job did not end within {limit_s} s:\n{errors}") from None
        ended = Ended(code if code >= 0 else 128 - code, self._text(self._out), self.errors())
        self._out.close()
        self._err.close()
        return ended

    def end(self):
        self._place.kill_all()
        self.starter.wait()
        self._out.close()
        self._err.close()

    @staticmethod
    def _text(file):
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0).decode("utf-8", "replace")


class Place:
    """A Place is a folder with a program of its own.

    Everything in the folder, and every process that runs the program, belongs to the jobs that were started here.
    """

    def __init__(self):
        self._root = tempfile.mkdtemp(prefix="weir-")
        self.folder, self.temporary, self.records = (os.path.join(self._root, name)
                                                     for name in ("cwd", "tmp", "records"))
        for name in (self.folder, self.temporary, self.records):
            os.mkdir(name)
        self.program = os.path.realpath(os.path.join(self._root, "weir"))
        shutil.copy(PROGRAM, self.program)
        os.chmod(self.program, 0o755)
        self._marker = f"WEIR_TEST_PLACE={uuid.uuid4()}"
        name, _, value = self._marker.partition("=")
        self.environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": self.temporary, name: value}

    def stop_next_worker(self, ranks):
        """Lets the next process of the worker with these ranks, such as "2-3", stop before it does anything.

        A script takes the place of the program that starters of this place start as workers. A starter that runs sees
        its program as removed, under a name that ends in " (deleted)".
        """
        behind, stops = (os.path.join(self._root, name) for name in ("weir-behind", "stops"))
        if not os.path.exists(behind):
            os.link(self.program, behind)
            os.unlink(self.program)
        label = f"ranks {ranks}" if "-" in ranks or "," in ranks else f"rank {ranks}"
        # One process alone removes the folder.
        script = ("#!/bin/sh\n"
                  f"if [ \"$2\" = \"{label}\" ] && rmdir {stops} 2>/dev/null; then kill -STOP $$; fi\n"
                  f"exec {behind} \"$@\"\n")
        os.makedirs(stops, exist_ok=True)
        for path in (self.program, self.program + " (deleted)"):
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(script)
            os.chmod(path + ".new", 0o755)
            os.replace(path + ".new", path)

    def kill_all(self):
        """Kills all processes of the jobs that were started here. The processes may end by themselves meanwhile."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self):
        self.kill_all()
        until("the end of all processes", lambda: not self.processes())
        shutil.rmtree(self._root)

    def processes(self):
        return census.processes_of(self.program, self._marker)

    def path(self, name):
        return os.path.join(self.folder, name)

    def bytes_of(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def flip_last_bit(self, name):
        """Changes the last bit of a file, whose size stays."""
        with open(self.path(name), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))

    def remove(self, name):
        """Removes a file if it is there."""
        if os.path.exists(self.path(name)):
            os.unlink(self.path(name))

    def run(self, *words):
        """Runs any verb of the program to its end. Fails if the program fails."""
        result = subprocess.run([self.program, *words], cwd=self.folder, env=self.environment, capture_output=True,
                                text=True, timeout=LIMIT_S, check=False)
        if result.returncode != 0:
            raise AssertionError(f"weir {' '.join(words)}: {result.returncode}\n{result.stderr}")
        return result

    def write_job(self, *options, model="gpt", job="job.textproto"):
        with open(self.path(job), "w", encoding="utf-8") as file:
            file.write(self.run("zoo", model, *options).stdout)

    def write_text(self, name="text.txt", num_words=3000):
        """Writes a text to learn, with a part to hold out. The text is the same on every call."""
        chance = random.Random(1)
        words = ["".join(chance.choices("aeinorst", k=chance.randint(1, 7))) for _ in range(50)]
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(" ".join(chance.choices(words, k=num_words)))

    def metrics(self, name):
        """Returns what each step reported, without the values that time and the number of processes decide."""
        with open(self.path(name), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        return [{key: value for key, value in row.items()
                 if not key.endswith(("_per_second", "_seconds")) and key != "buddy_bytes"} for row in rows]

    def start(self, *arguments, job="job.textproto", verb="train"):
        return Job(self, list(arguments), job, verb)

    def train(self, *arguments, job="job.textproto"):
        """Trains to the end. Fails if the job fails."""
        ended = self.start(*arguments, job=job).wait()
        if ended.code != 0:
            raise AssertionError(f"weir train {' '.join(arguments)}: {ended.code}\n{ended.err}")
        return ended


class JobCase(unittest.TestCase):
    """A JobCase tests jobs. Each test has a place of its own, which is gone when the test ends."""

    def setUp(self):
        self.place = Place()
        self.addCleanup(self.place.close)

    def write_job(self, *options):
        """Writes the job of a small model, with these options of `weir zoo`."""
        self.place.write_job(*SMALL, *options)

    def ask_for_checkpoint(self, job, count):
        """Lets the run write its checkpoint number `count`, the only one on its way. Returns the folder's name."""
        job.wait_for_step()
        job.starter.send_signal(signal.SIGUSR1)
        written = re.compile(r"checkpoint of step \d+ written to [a-z]+/(step-\d+)")
        return until("a checkpoint", lambda: written.findall(job.errors())[count - 1:])[0]

    def mount_small_disk(self, name, size):
        """Mounts a disk of that size, such as "8k", at a new folder of the place. Skips the test where nobody may."""
        os.mkdir(self.place.path(name))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "weir", self.place.path(name)],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            print("NOT TESTED: a full disk needs a file system of its own, and this user may not mount one",
                  file=sys.stderr)
            self.skipTest("cannot mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", self.place.path(name)], check=False)


class FailureCase(JobCase):
    """A FailureCase loses processes of jobs, which end with the bits of a run without failure.

    A subclass has STEPS of the job, and FLAGS of its own. Each job has four processes.
    """

    MESH = ("--mesh", "dp=2,tp=2", "--processes", "4")
    STEPS = "0"
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        """Trains once without a failure. Every test has the same job."""
        place = Place()
        try:
            place.write_job(*SMALL, "--steps", cls.STEPS)
            place.train(*cls.MESH, "--save", "good.st", "--metrics", "good.jsonl")
            cls.good_weights = place.bytes_of("good.st")
            cls.good_rows = {row["step"]: row for row in place.metrics("good.jsonl")}
        finally:
            place.close()

    def setUp(self):
        super().setUp()
        self.write_job("--steps", self.STEPS)

    def start(self, *options):
        return self.place.start(*self.MESH, "--save", "weights.st", "--metrics", "metrics.jsonl", *self.FLAGS, *options)

    def expect_results_of_no_failure(self, ended):
        """Expects the weights and metrics of the run without failure, and that no process is left."""
        self.assertEqual(ended.code, 0, ended.err)
        self.assertTrue(self.place.bytes_of("weights.st") == self.good_weights, "the weights differ\n" + ended.err)
        good = self.good_rows
        rows = self.place.metrics("metrics.jsonl")
        self.assertEqual([row for row in rows if row != good[row["step"]]], [])
        self.assertEqual([row["step"] for row in rows], sorted(good), "each step has one row")
        self.assertEqual(self.place.processes(), [])
