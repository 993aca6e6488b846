"""Tests what a user does to a job in many processes, on purpose or by mistake.

The user interrupts the job, names things that are not there, and looks for the logs. Other tests check that nobody can
read the secrets of the job.
"""

import os
import re
import signal
import unittest

from tests.processes import census
from tests.processes import weir_jobs

INTERRUPTED = 130
REJECTED = 65
MISSING = 66
FOUR = ("--mesh", "dp=2,tp=2", "--processes", "4")
TWO = ("--mesh", "dp=2,tp=2", "--processes", "2")
MANY_STEPS = "1000000"


class Signals(weir_jobs.JobCase):
    def expect_nothing_left(self):
        weir_jobs.until("the end of all processes", lambda: not self.place.processes())
        self.assertEqual(os.listdir(self.place.temporary), [])

    def test_a_signal_to_the_starter_ends_the_job_after_the_step_and_saves(self):
        self.write_job("--steps", MANY_STEPS, "--min-lr", "0.003")
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                self.place.remove("metrics.jsonl")
                job = self.place.start(*FOUR, "--save", "many.st", "--metrics", "metrics.jsonl")
                job.wait_for_step()
                job.starter.send_signal(number)
                ended = job.wait()
                self.assertEqual(ended.code, INTERRUPTED, ended.err)
                steps = self.place.metrics("metrics.jsonl")[-1]["step"]
                self.assertIn(f"interrupted after step {steps} of {MANY_STEPS}", ended.err)
                self.assertNotIn("to go on from", ended.err, "the run has no checkpoint")
                self.expect_nothing_left()
                self.place.train("--mesh", "dp=2,tp=2", "--steps", str(steps), "--save", "one.st")
                self.assertTrue(self.place.bytes_of("many.st") == self.place.bytes_of("one.st"))

    def test_sigusr1_writes_a_checkpoint_of_the_last_update_and_the_run_goes_on(self):
        for spread, every in ((FOUR, 1), (TWO, 3), (("--mesh", "dp=2"), 2)):
            with self.subTest(spread=spread, every=every):
                self.write_job("--steps", MANY_STEPS, "--min-lr", "0.003")
                self.place.remove("asked.ck")
                self.place.remove("metrics.jsonl")
                words = (*spread, "--set", f"training.update_every={every}")
                job = self.place.start(*words, "--checkpoint", "asked.ck", "--metrics", "metrics.jsonl")
                job.wait_for_step()
                job.starter.send_signal(signal.SIGUSR1)
                job.wait_for_text("written to asked.ck")
                step = int(re.search(r"checkpoint of step (\d+) written to asked.ck", job.errors())[1])
                os.rename(self.place.path("asked.ck"), self.place.path("first.ck"))
                weir_jobs.until("a later step",
                                lambda step=step: self.place.metrics("metrics.jsonl")[-1]["step"] > step)
                job.starter.send_signal(signal.SIGINT)
                ended = job.wait()
                self.assertEqual(ended.code, INTERRUPTED, ended.err)
                self.assertRegex(ended.err.splitlines()[-1], r"^to go on from the last checkpoint: \S+ train "
                                                             r"job\.textproto .* --resume asked\.ck$")
                self.assertEqual(step % every, 0)
                last = int(re.search(r"interrupted after step (\d+)", ended.err)[1])
                self.assertGreater(last, step)
                self.place.train(*words, "--resume", "first.ck", "--steps", str(last), "--save", "resumed.st")
                self.place.train(*words, "--steps", str(last), "--save", "straight.st")
                self.assertTrue(self.place.bytes_of("resumed.st") == self.place.bytes_of("straight.st"))
                self.expect_nothing_left()

    def test_sigusr1_without_a_checkpoint_is_answered_and_ends_nothing(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.place.start(*FOUR)
        job.wait_for_step()
        job.starter.send_signal(signal.SIGUSR1)
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)

    def test_a_second_signal_ends_the_job_at_once(self):
        self.write_job("--steps", MANY_STEPS)
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                job = self.place.start(*FOUR, "--dead-after", "600")
                job.wait_for_step()
                # The stopped worker keeps the step from ending.
                os.kill(job.wait_for_workers(4)["3"], signal.SIGSTOP)
                job.starter.send_signal(number)
                with self.assertRaises(AssertionError):
                    weir_jobs.until("an end after one signal", lambda job=job: job.starter.poll() is not None, 1)
                job.starter.send_signal(number)
                self.assertEqual(job.wait(60).code, 128 + number)
                self.expect_nothing_left()

    def test_a_worker_killed_while_it_starts_is_named(self):
        self.write_job("--steps", MANY_STEPS)
        for rank in ("0", "2", "3"):
            with self.subTest(rank=rank):
                job = self.place.start(*FOUR)
                pid = weir_jobs.until("the worker", lambda job=job, rank=rank: {
                    r: p for p, r in job.workers().items()}.get(rank))
                os.kill(pid, signal.SIGKILL)
                ended = job.wait()
                self.assertEqual(ended.code, 128 + signal.SIGKILL, ended.err)
                self.assertEqual(ended.first_failure(), (rank, pid, "killed by SIGKILL (9)"), ended.err)
                self.expect_nothing_left()

    def test_a_worker_that_somebody_else_ends_is_named_with_the_signal(self):
        self.write_job("--steps", MANY_STEPS)
        for number in (signal.SIGTERM, signal.SIGSEGV):
            with self.subTest(number=number):
                job = self.place.start(*TWO)
                job.wait_for_step()
                pid = job.wait_for_workers(2)["2-3"]
                os.kill(pid, number)
                ended = job.wait()
                self.assertEqual(ended.code, 128 + number, ended.err)
                self.assertEqual(ended.first_failure(), ("2-3", pid, f"killed by {number.name} ({int(number)})"),
                                 ended.err)

    def test_logs_that_cannot_be_written_end_the_job_before_it_begins(self):
        self.write_job("--steps", "5")
        ended = self.place.start(*FOUR, "--logs", "job.textproto/logs").wait()
        self.assertNotEqual(ended.code, 0)
        self.assertIn("W0092", ended.err)
        self.assertIn("job.textproto", ended.err)
        self.assertNotIn("fault of weir", ended.err)
        self.expect_nothing_left()

    def test_the_console_shows_the_ranks_asked_for_and_the_logs_have_all(self):
        self.write_job("--steps", "5")
        # UCX tells which lanes it uses, so every worker has something to say.
        self.place.environment["UCX_LOG_LEVEL"] = "info"
        for shown, hidden, options in (("0-1", "2-3", ("--ranks", "1")), ("2-3", "0-1", ("--ranks", "2-3"))):
            with self.subTest(shown=shown):
                ended = self.place.train(*TWO, "--logs", f"logs of {shown}", *options)
                self.assertIn(f"[ranks {shown}] ", ended.err)
                self.assertNotIn(f"[ranks {hidden}] ", ended.err)
                (folder,) = set(os.listdir(self.place.path(f"logs of {shown}"))) - {"latest"}
                self.assertEqual(os.readlink(self.place.path(f"logs of {shown}/latest")), folder)
                printed = [line.removeprefix(f"[ranks {shown}] ") for line in ended.err.splitlines()
                           if line.startswith("[ranks ")]
                for ranks in (shown, hidden):
                    with open(self.place.path(f"logs of {shown}/{folder}/ranks-{ranks}.log"), encoding="utf-8") as file:
                        lines = file.read().splitlines()
                    self.assertTrue(lines)
                    self.assertFalse(any("[ranks " in line for line in lines))
                    if ranks == shown:
                        self.assertEqual(lines, printed)

    def test_ranks_that_the_mesh_lacks_are_refused(self):
        self.write_job("--steps", "5")
        ended = self.place.start(*TWO, "--ranks", "4").wait()
        self.assertEqual(ended.code, REJECTED, ended.err)
        self.assertIn("W0091", ended.err)

    def test_more_processes_than_devices_are_refused(self):
        self.write_job("--steps", "5")
        ended = self.place.start("--mesh", "dp=2", "--processes", "3").wait()
        self.assertEqual(ended.code, REJECTED, ended.err)
        self.assertIn("W0090", ended.err)
        self.assertFalse(os.path.exists(self.place.path("weir-logs")), "nothing was started")

    def test_what_is_missing_or_wrong_is_said_in_the_same_words_with_processes_and_without(self):
        self.place.write_text()
        self.write_job("--steps", "5", "--data", "text.txt")
        self.place.train("--mesh", "", "--steps", "1", "--save", "other.st", "--set", "graph.dim[hidden].size=64")
        cases = {
            "data": (MISSING, ("--set", 'data.text.path="nowhere.txt"')),
            "init": (MISSING, ("--init", "nowhere.st")),
            "resume": (MISSING, ("--resume", "nowhere.st")),
            "folder": (MISSING, ("--save", "no/such/folder.st")),
            "trace": (MISSING, ("--trace", "no/such/folder.pftrace")),
            "other weights": (REJECTED, ("--init", "other.st")),
            "mesh": (REJECTED, ("--mesh", "dp=0")),
        }
        for name, (code, options) in cases.items():
            with self.subTest(name=name):
                found = []
                for spread in ((), ("--processes", "2")):
                    mesh = () if "--mesh" in options else ("--mesh", "dp=2")
                    ended = self.place.start(*mesh, *options, *spread).wait()
                    messages = [line for line in ended.err.splitlines() if re.match(r"weir: W\d{4}", line)]
                    self.assertEqual((ended.code, len(messages)), (code, 1), ended.err)
                    found.append(messages)
                self.assertEqual(found[0], found[1])
                self.expect_nothing_left()


class Secrets(weir_jobs.JobCase):
    """Tests that keys stay secret.

    The key of a process proves who the process is. The key of the job proves that a peer belongs to the job. A worker
    gets both keys by a pipe alone.
    """

    MARKS = (b"PRIVATE KEY", b"-----BEGIN")

    def setUp(self):
        super().setUp()
        self.write_job("--steps", MANY_STEPS)

    def files(self):
        for folder, _, names in os.walk(self.place.folder):
            yield from (os.path.join(folder, name) for name in names)
        yield from (os.path.join(self.place.temporary, name) for name in os.listdir(self.place.temporary))

    def keys_of(self, pid):
        """Returns the private keys in the memory of a process, as a line of 64 characters of each key."""
        keys = set()
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                begin, end = (int(word, 16) for word in line.split()[0].split("-"))
                if " rw-p " not in line:
                    continue
                try:
                    memory.seek(begin)
                    keys |= set(re.findall(rb"-----BEGIN (?:EC |RSA )?PRIVATE KEY-----\n(\S{64})\n",
                                           memory.read(end - begin)))
                except (OSError, ValueError, OverflowError):  # not readable after all
                    continue
        return keys

    def test_a_worker_is_told_nothing_by_argument_or_environment(self):
        self.place.environment["UCX_LOG_LEVEL"] = "info"
        secret = {"CLOUD_TOKEN": "not for workers", "http_proxy": "http://127.0.0.1:1"}
        self.place.environment.update(secret)
        job = self.place.start(*TWO)
        job.wait_for_step()
        given = {f"{name}={value}" for name, value in self.place.environment.items() if name not in secret}
        for ranks, pid in job.wait_for_workers(2).items():
            self.assertEqual(census.arguments_of(pid), [self.place.program, "worker", f"ranks {ranks}"])
            with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
                self.assertEqual(set(file.read().split("\0")) - {""}, given)
        job.end()

    def test_a_worker_can_start_no_program(self):
        with open("/proc/self/status", encoding="utf-8") as file:
            if "Seccomp_filters:" not in file.read():
                self.skipTest("NOT PROVED: this kernel does not filter system calls")
        job = self.place.start(*TWO)
        job.wait_for_step()
        for pid in job.wait_for_workers(2).values():
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                self.assertRegex(file.read(), r"NoNewPrivs:\s1\n(.*\n)*?Seccomp:\s2\n")
        job.end()

    def test_no_key_is_in_logs_in_files_or_on_the_console(self):
        self.place.environment["UCX_LOG_LEVEL"] = "info"
        job = self.place.start(*TWO, "--save", "weights.st", "--checkpoint", "all.st", "--trace", "trace.pftrace",
                               "--metrics", "m.jsonl")
        job.wait_for_step()
        keys = set().union(*(self.keys_of(pid) for pid in job.wait_for_workers(2).values()))
        self.assertTrue(keys, "no worker has a key")
        job.starter.send_signal(signal.SIGTERM)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)
        searched = {path: self.place.bytes_of(path) for path in self.files()}
        searched["console"] = (ended.out + ended.err).encode()
        self.assertGreaterEqual(len(searched), 8)
        for path, found in searched.items():
            for secret in (*self.MARKS, *keys):
                self.assertFalse(secret in found, path)


if __name__ == "__main__":
    unittest.main()
