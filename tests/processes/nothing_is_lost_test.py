"""Tests what a job keeps when it is disturbed.

The disturbances are signals before and after the first step, closed pipes and terminals, full disks, values that are
not finite, and files that have changed.
"""

import os
import pty
import random
import re
import shutil
import signal
import subprocess
import unittest

from tests.processes import weir_jobs

INTERRUPTED = 130
NOT_FINITE = 3
DAMAGED = 66
MANY_STEPS = "1000000"
SOON_S = 60  # on a machine with many other things to do
SPREADS = {"one process": ("--mesh", "dp=2"), "two processes": ("--mesh", "dp=2", "--processes", "2")}
# A model of this size takes a while to load, and more than a while to draw its first values.
LARGE = ["--layers", "8", "--hidden", "512", "--heads", "8", "--sequence", "16", "--batch", "8"]


def unwrapped(text):
    """Returns a text on one line, independent of the width of its lines."""
    return " ".join(text.split())


class NothingIsLost(weir_jobs.JobCase):
    def expect_nothing_left(self):
        weir_jobs.until("the end of all processes", lambda: not self.place.processes())
        self.assertFalse([name for name in os.listdir(self.place.folder) if ".partial-" in name])

    def test_a_hangup_ends_the_job_after_the_step_and_saves(self):
        self.write_job("--steps", MANY_STEPS, "--min-lr", "0.003")
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                job = self.place.start(*spread, "--save", "w.st", "--checkpoint", "c.st")
                job.wait_for_step()
                for pid in job.pids():  # as `pkill -HUP weir` does
                    os.kill(pid, signal.SIGHUP)
                ended = job.wait()
                self.assertEqual(ended.code, INTERRUPTED, ended.err)
                self.assertIn("interrupted after step", ended.err)
                for file in ("w.st", "c.st"):
                    self.assertTrue(os.path.exists(self.place.path(file)), file)
                    self.place.remove(file)
                self.expect_nothing_left()

    def test_a_closed_terminal_ends_the_job_and_saves(self):
        self.write_job("--steps", MANY_STEPS)
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                pid, terminal = pty.fork()
                if pid == 0:
                    os.chdir(self.place.folder)
                    os.execve(self.place.program, [self.place.program, "train", "job.textproto", *spread,
                                                   "--save", "w.st", "--metrics", "m.jsonl"],
                              self.place.environment)
                weir_jobs.until("the first step", lambda: os.path.exists(self.place.path("m.jsonl"))
                                and self.place.bytes_of("m.jsonl").count(b"\n") > 1)
                os.close(terminal)
                _, status = os.waitpid(pid, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), INTERRUPTED)
                self.assertTrue(os.path.exists(self.place.path("w.st")))
                self.place.remove("w.st")
                self.place.remove("m.jsonl")
                self.expect_nothing_left()

    def test_whoever_ignores_hangups_is_not_ended_by_one(self):
        self.write_job("--steps", MANY_STEPS)
        command = [self.place.program, "train", "job.textproto", "--metrics", "m.jsonl"]
        job = subprocess.Popen(["nohup", *command], cwd=self.place.folder, env=self.place.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def steps():
            return self.place.bytes_of("m.jsonl").count(b"\n") if os.path.exists(self.place.path("m.jsonl")) else 0

        weir_jobs.until("the first step", lambda: steps() > 0)
        job.send_signal(signal.SIGHUP)
        seen = steps()
        weir_jobs.until("more steps", lambda: steps() > seen + 5)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(weir_jobs.LIMIT_S), INTERRUPTED)

    def test_a_reader_that_leaves_costs_nothing(self):
        self.write_job("--steps", "300")
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                read, write = os.pipe()
                job = subprocess.Popen([self.place.program, "train", "job.textproto", *spread, "--save", "w.st"],
                                       cwd=self.place.folder, env=self.place.environment, stdin=subprocess.DEVNULL,
                                       stdout=write, stderr=write)
                os.close(write)
                os.read(read, 1)
                os.close(read)
                self.assertEqual(job.wait(weir_jobs.LIMIT_S), 0)
                self.place.train("--mesh", "dp=2", "--save", "reference.st")
                self.assertTrue(self.place.bytes_of("w.st") == self.place.bytes_of("reference.st"))
                self.place.remove("w.st")

    def test_a_signal_before_the_first_step_is_obeyed_soon_and_changes_no_file(self):
        self.place.write_job(*LARGE, "--steps", "5")
        files = ("w.st", "c.st", "m.jsonl", "t.pftrace")
        for name in files:
            with open(self.place.path(name), "w", encoding="ascii") as file:
                file.write("of an earlier run")
        for name, spread in SPREADS.items():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                with self.subTest(spread=name, number=number):
                    job = self.place.start(*spread, "--save", "w.st", "--checkpoint", "c.st", "--metrics", "m.jsonl",
                                           "--trace", "t.pftrace")
                    weir_jobs.until("a signal is heard", lambda job=job: self._catches(job.starter.pid, number))
                    if len(spread) > 2:
                        job.wait_for_workers(2)
                    job.starter.send_signal(number)
                    ended = job.wait(SOON_S)
                    self.assertEqual(ended.code, INTERRUPTED, ended.err)
                    self.assertIn("no file is written or changed", ended.err)
                    for file in files:
                        self.assertEqual(self.place.bytes_of(file), b"of an earlier run", file)
                    self.expect_nothing_left()

    @staticmethod
    def _catches(pid, number):
        """Returns whether the process has a handler of its own for the signal.

        UCX handles other signals, so a handler of SIGTERM shows that the handlers are those of weir.
        """
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt:"))
        return caught >> (signal.SIGTERM - 1) & caught >> (number - 1) & 1

    def test_values_that_are_not_finite_end_the_job_and_are_named_alike_by_one_process_and_two(self):
        self.write_job("--steps", "30")
        rows = ["--set", "training.schedule.learning_rate=1e30", "--set", "training.schedule.warmup_steps=0",
                "--set", "training.optimizer.clip_norm=0"]
        said = []
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                for file in ("w.st", "c.st"):
                    with open(self.place.path(file), "w", encoding="ascii") as good:
                        good.write("of an earlier run")
                ended = self.place.start(*spread, *rows, "--save", "w.st", "--checkpoint", "c.st",
                                         "--checkpoint-every", "7").wait()
                self.assertEqual(ended.code, NOT_FINITE, ended.err)
                said.append(re.search(r"weir: W0962 at step 2: .*", unwrapped(ended.err)).group())
                self.assertRegex(said[-1], r"first not finite: rank \d+, forward \S+, micro-batch 0: call ")
                for file in ("w.st", "c.st"):
                    self.assertEqual(self.place.bytes_of(file), b"of an earlier run")
                self.place.train("--mesh", "dp=2", *rows, "--steps", "1", "--save", "one.st")
                self.assertTrue(self.place.bytes_of("w.st.stopped") == self.place.bytes_of("one.st"),
                                "the state before that step")
                self.expect_nothing_left()
        self.assertEqual(said[0], said[-1])

    def test_a_checkpoint_of_which_a_bit_has_changed_is_refused_and_the_tensor_named(self):
        self.write_job("--steps", "2")
        self.place.train("--mesh", "dp=2", "--checkpoint", "c.st", "--save", "w.st")
        whole = self.place.bytes_of("c.st")
        chance = random.Random(weir_jobs.seed())
        header = int.from_bytes(whole[:8], "little")
        for name, spread in SPREADS.items():
            for _ in range(5):
                at = chance.randrange(8 + header, len(whole))
                with self.subTest(spread=name, at=at):
                    changed = bytearray(whole)
                    changed[at] ^= 1 << chance.randrange(8)
                    with open(self.place.path("changed.st"), "wb") as file:
                        file.write(changed)
                    ended = self.place.start(*spread, "--steps", "4", "--resume", "changed.st").wait()
                    self.assertEqual(ended.code, DAMAGED, ended.err)
                    self.assertRegex(unwrapped(ended.err), r"weir: W0960 at changed\.st, tensor \S+:")
        self.assertIn("going on after step 2",
                      self.place.train("--mesh", "dp=2", "--steps", "4", "--resume", "c.st").err)

    def test_a_full_disk_costs_what_is_on_it_and_no_more(self):
        self.write_job("--steps", "40")
        self.mount_small_disk("full", "8k")
        self.place.train("--mesh", "dp=2", "--save", "reference.st")
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                ended = self.place.start(*spread, "--checkpoint", "full/c.st", "--checkpoint-every", "10",
                                         "--save", "w.st", "--metrics", "full/m.jsonl",
                                         "--trace", "full/t.pftrace").wait()
                self.assertEqual(ended.code, DAMAGED, ended.err)
                self.assertIn("WARNING: no checkpoint of step 10: W0046 at full/c.st", ended.err)
                self.assertIn("WARNING: no trace: ", ended.err)
                self.assertEqual(unwrapped(ended.err).count("no trace: "), 1, ended.err)
                self.assertRegex(unwrapped(ended.err),
                                 r"weir: W0046 at full/c\.st: .*No space left on device.*Try: make room")
                self.assertTrue(self.place.bytes_of("w.st") == self.place.bytes_of("reference.st"))
                self.place.remove("w.st")
                self.place.remove("full/m.jsonl")
                self.expect_nothing_left()

    def test_a_checkpoint_for_which_a_disk_has_no_room_leaves_nothing_on_it(self):
        self.write_job("--steps", "8")
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                self.mount_small_disk(f"room_{len(spread)}", "1m")
                folder = f"room_{len(spread)}/run"
                ended = self.place.start(*spread, "--checkpoint", folder + "/", "--checkpoint-every", "4").wait()
                self.assertEqual(ended.code, DAMAGED, ended.err)
                self.assertIn("WARNING: no checkpoint of step 8: W0046 at ", ended.err)
                self.assertIn(f"the last good one is {folder}/step-000000004", ended.err)
                self.assertEqual(sorted(os.listdir(self.place.path(folder))), ["latest", "step-000000004"])
                self.expect_nothing_left()

    def test_a_folder_of_checkpoints_is_written_by_every_process_and_resumed_on_another_mesh(self):
        self.write_job("--steps", "8", "--min-lr", "0.003")
        self.place.train("--mesh", "dp=2", "--metrics", "through.jsonl", "--save", "through.st")
        through = self.place.metrics("through.jsonl")
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                self.place.train(*spread, "--steps", "4", "--checkpoint", "run/", "--checkpoint-every", "2")
                self.assertEqual(sorted(os.listdir(self.place.path("run"))),
                                 ["latest", "step-000000002", "step-000000004"])
                self.assertEqual(sorted(os.listdir(self.place.path("run/step-000000004"))),
                                 ["index.pb", "rank-00000.safetensors", "rank-00001.safetensors"])
                self.place.train("--mesh", "dp=2", "--processes", "2", "--resume", "run/", "--save", "w.st",
                                 "--metrics", "same.jsonl")
                self.assertEqual(self.place.metrics("same.jsonl"), through[4:])
                self.assertTrue(self.place.bytes_of("w.st") == self.place.bytes_of("through.st"))
                self.place.train("--mesh", "tp=2", "--processes", "2", "--resume", "run/", "--metrics", "other.jsonl")
                for row, expected in zip(self.place.metrics("other.jsonl"), through[4:], strict=True):
                    self.assertAlmostEqual(row["loss"], expected["loss"], delta=1e-5 * expected["loss"])
                shutil.rmtree(self.place.path("run"))
                for file in ("w.st", "same.jsonl", "other.jsonl"):
                    self.place.remove(file)
                self.expect_nothing_left()

    def test_a_checkpoint_whose_folder_comes_back_is_written_again(self):
        self.write_job("--steps", MANY_STEPS)
        os.mkdir(self.place.path("there"))
        job = self.place.start("--mesh", "dp=2", "--checkpoint", "there/c.st", "--checkpoint-every", "20")
        job.wait_for_text(" written to there/c.st")
        shutil.rmtree(self.place.path("there"))
        job.wait_for_text("WARNING: no checkpoint of step ")
        weir_jobs.until("the whole warning", lambda: re.search(r"there is\s+none\s+of\s+this\s+run", job.errors()))
        os.mkdir(self.place.path("there"))
        job.wait_for_text(" written to there/c.st again")
        job.starter.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().code, INTERRUPTED)

    def test_a_run_whose_folder_of_checkpoints_is_renamed_keeps_others_out_of_the_new_one(self):
        self.write_job("--steps", MANY_STEPS)
        for name, spread in SPREADS.items():
            with self.subTest(spread=name):
                job = self.place.start(*spread, "--checkpoint", "run/", "--checkpoint-every", "20", "--keep", "1")
                job.wait_for_text(" written to run/step-")
                os.rename(self.place.path("run"), self.place.path("moved"))
                job.wait_for_text("WARNING: somebody has renamed or removed run, ")
                weir_jobs.until("a checkpoint in the new folder",
                                lambda: os.path.exists(self.place.path("run/latest")))
                second = self.place.start(*spread, "--checkpoint", "run/").wait()
                self.assertEqual(second.code, DAMAGED, second.err)
                self.assertIn("W0741", second.err)
                self.assertTrue(os.path.exists(self.place.path("moved/latest")))
                job.starter.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait().code, INTERRUPTED)
                shutil.rmtree(self.place.path("run"))
                shutil.rmtree(self.place.path("moved"))
                self.expect_nothing_left()

    def test_modes_links_and_the_umask_are_respected(self):
        self.write_job("--steps", "2")
        os.mkdir(self.place.path("elsewhere"))
        os.symlink("elsewhere/w.st", self.place.path("w.st"))
        with open(self.place.path("c.st"), "wb"):
            os.chmod(self.place.path("c.st"), 0o640)
        mask = os.umask(0o077)
        try:
            self.place.train("--mesh", "dp=2", "--save", "w.st", "--checkpoint", "c.st", "--trace", "t.pftrace")
        finally:
            os.umask(mask)
        self.assertTrue(os.path.islink(self.place.path("w.st")))
        modes = {name: os.stat(self.place.path(name)).st_mode & 0o777
                 for name in ("elsewhere/w.st", "c.st", "t.pftrace")}
        self.assertEqual(modes, {"elsewhere/w.st": 0o600, "c.st": 0o640, "t.pftrace": 0o600})

    def test_a_second_job_with_the_same_metrics_is_told_and_starts_nothing(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.place.start("--mesh", "dp=2", "--metrics", "m.jsonl")
        job.wait_for_step()
        second = self.place.start("--mesh", "dp=2", "--metrics", "m.jsonl").wait()
        self.assertEqual(second.code, DAMAGED, second.err)
        self.assertIn("W0961 at --metrics m.jsonl: expected a file that no other job writes; "
                      f"found one that a running job writes (pid {job.starter.pid})", unwrapped(second.err))
        job.starter.send_signal(signal.SIGTERM)
        job.wait()
        self.assertTrue(self.place.metrics("m.jsonl"), "every line can be read")


if __name__ == "__main__":
    unittest.main()
