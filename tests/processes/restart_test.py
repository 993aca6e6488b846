"""Kills workers of jobs that start again on failure. The jobs end with the bits of a run without failure.

WEIR_TEST_SEED repeats the choices of a run. WEIR_RESTARTS sets how many workers the test of random kills kills. This
command kills 200:
WEIR_RESTARTS=200 WEIR=bazel-bin/tools/weir python3 -m tests.processes.restart_test
"""

import os
import random
import re
import shlex
import shutil
import signal
import statistics
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

KILLS = int(os.environ.get("WEIR_RESTARTS", "4"))
READY = r"all processes are ready again, (\d+\.\d+) s after the failure"
KILLED = 128 + signal.SIGKILL
NOT_FINITE = 3
BAD_DATA = 65
DAMAGED = 66
GOES_ON = "to go on from the last checkpoint: "


class Restart(weir_jobs.FailureCase):
    STEPS = str(200 * (KILLS + 2))  # enough for a test that does something between two checkpoints and a kill
    FLAGS = ("--on-failure", "restart")

    def kill_when(self, job, seen, rank="1"):
        """Kills the worker of that rank once the job has printed `seen`. Returns the worker's process number."""
        job.wait_for_text(seen)
        pid = job.wait_for_workers(4)[rank]
        os.kill(pid, signal.SIGKILL)
        return pid

    def may_kill(self, job, kills, chance):
        """Waits for a moment to kill a worker for the next time: while the ranks load, or some checkpoints later.

        Returns whether the job still runs.
        """

        def has_restarted():
            return kills == 0 or f"WARNING: restart {kills} after step " in job.errors()

        def ended():
            return job.starter.poll() is not None

        weir_jobs.until("a restart", lambda: has_restarted() or ended())
        weir_jobs.until("workers", lambda: len(job.workers()) == 4 or ended())
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, 0.5))
        else:
            count = job.errors().count("checkpoint of step ") + chance.randint(1, 4)
            weir_jobs.until("checkpoints", lambda: job.errors().count("checkpoint of step ") >= count or ended())
        return not ended()

    def expect_good(self, ended, restarts_max):
        """Expects the end of a run without failure. Some of the kills may have come after the last step."""
        failures = ended.err.count("first failure: ") - ended.err.count("WARNING: that came after the last step")
        self.assertEqual(failures, ended.err.count("WARNING: restart "), ended.err)
        self.assertLessEqual(failures, restarts_max)
        # Processes that fail while they load are never ready.
        self.assertLessEqual(min(failures, 1), len(re.findall(READY, ended.err)), ended.err)
        self.expect_results_of_no_failure(ended)

    def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5")
        self.kill_when(job, "checkpoint of step 5 written")
        job.wait_for_text("restart 1 after step ")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertRegex(ended.err, r"restart 1 after step \d+: the job goes on from checkpoints/step-")
        self.assertIn("a lost process costs the steps since the last checkpoint, of which there is one every 5 steps: "
                      "all processes start again (--on-failure restart)", ended.err)
        self.assertIn("first failure: rank 1 (pid ", ended.err)

    def test_without_a_checkpoint_the_job_begins_again(self):
        job = self.start()
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertIn("--on-failure restart without --checkpoint starts the job from its beginning", ended.err)
        self.assertIn("the job goes on from its beginning", ended.err)

    def test_a_process_that_is_stopped_as_it_starts_again_is_the_failure_and_the_job_starts_again(self):
        job = self.start("--checkpoint", "checkpoints/", "--dead-after", "1.5")
        self.ask_for_checkpoint(job, 1)
        stopped = job.stop_new_worker(job.wait_for_workers(4)["1"])
        job.wait_for_text("restart 2 after step ")
        ended = job.wait()
        self.expect_results_of_no_failure(ended)
        self.assertRegex(ended.err, rf"first failure: rank 1 \(pid {stopped}\): has not said hello within \d+\.\d s; "
                                    r"its process is stopped \(state T\)\n")

    def kill_as_it_starts(self, times):
        """Kills a worker while steps run, and each new one before its hello, so many times.

        Returns the pid of the last new one, which is stopped, and the job.
        """
        # A process that is stopped for a moment is to be no failure, however slow this process is.
        job = self.start("--checkpoint", "checkpoints/", "--max-restarts", "10", "--dead-after", "300")
        self.ask_for_checkpoint(job, 1)
        pid = job.wait_for_workers(4)["1"]
        for _ in range(times + 1):
            pid = job.stop_new_worker(pid)
        return pid, job

    def test_a_process_that_somebody_kills_twice_as_it_starts_is_no_fault_of_the_job(self):
        pid, job = self.kill_as_it_starts(2)
        os.kill(pid, signal.SIGCONT)
        ended = job.wait()
        self.expect_good(ended, 3)
        self.assertIn("WARNING: restart 3 after step ", ended.err)

    def test_a_process_that_is_killed_three_times_as_it_starts_ends_the_job(self):
        pid, job = self.kill_as_it_starts(2)
        os.kill(pid, signal.SIGKILL)
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertRegex(ended.err, r"the job does not start again: rank 1 failed 3 times in a row in the same way at "
                                    r"the same place \(killed by SIGKILL \(9\) after step \d+, when the processes of "
                                    r"the job were starting\)\n")
        times = [float(seconds) for seconds in re.findall(r"The job failed after (\S+) s of the run\n", ended.err)]
        self.assertEqual((len(times), times), (4, sorted(times)), "all count from the start of the run")

    def test_no_other_run_takes_the_folder_while_the_processes_start_again(self):
        job = self.start("--checkpoint", "checkpoints/")
        self.ask_for_checkpoint(job, 1)
        self.kill_when(job, "step 1/")
        job.wait_for_text("restart 1 after step ")
        # The starter stands still between the two starts.
        os.kill(job.starter.pid, signal.SIGSTOP)
        second = self.place.start("--checkpoint", "checkpoints/").wait()
        os.kill(job.starter.pid, signal.SIGCONT)
        self.assertEqual(second.code, DAMAGED, second.err)
        self.assertIn("W0741", second.err)
        self.expect_good(job.wait(), 1)

    def test_a_folder_that_is_renamed_before_a_failure_costs_only_the_steps_since_its_checkpoint(self):
        job = self.start("--checkpoint", "checkpoints/")
        name = self.ask_for_checkpoint(job, 1)
        os.rename(self.place.path("checkpoints"), self.place.path("moved"))
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertIn("WARNING: somebody has renamed or removed checkpoints, ", ended.err)
        self.assertRegex(ended.err, rf"restart 1 after step \d+: the job goes on from \S*/moved/{name}\n")
        self.assertEqual([step for step in os.listdir(self.place.path("moved")) if "step" in step], [name])
        self.assertTrue(os.path.exists(self.place.path("checkpoints/latest")))

    def test_a_checkpoint_that_somebody_removes_before_a_failure_costs_only_its_own_steps(self):
        job = self.start("--checkpoint", "checkpoints/")
        first = self.ask_for_checkpoint(job, 1)
        second = self.ask_for_checkpoint(job, 2)
        self.assertNotEqual(first, second)
        shutil.rmtree(self.place.path(f"checkpoints/{second}"))
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertIn(f"WARNING: the checkpoint checkpoints/{second} is passed over: it is no longer there",
                      ended.err)
        self.assertRegex(ended.err, rf"restart 1 after step \d+: the job goes on from checkpoints/{first}\n")

    def test_a_checkpoint_that_goes_after_a_restart_has_chosen_it_costs_only_its_own_steps(self):
        job = self.start("--checkpoint", "checkpoints/", "--dead-after", "300")
        first = self.ask_for_checkpoint(job, 1)
        second = self.ask_for_checkpoint(job, 2)
        self.assertNotEqual(first, second)
        stopped = job.stop_new_worker(job.wait_for_workers(4)["1"])
        self.assertIn(f"the job goes on from checkpoints/{second}\n", job.errors())
        os.rename(self.place.path(f"checkpoints/{second}"), self.place.path("gone"))
        os.kill(stopped, signal.SIGCONT)
        ended = job.wait()
        self.expect_good(ended, 1)
        self.assertIn("the start did not begin from", ended.err)
        self.assertIn(f"WARNING: the checkpoint checkpoints/{second} is passed over: it is no longer there", ended.err)
        self.assertIn(f": the job goes on from checkpoints/{first}\n", ended.err)

    def expect_the_end_with(self, ended, code, text):
        """Expects that the run has started again once, and that this error has then ended it."""
        self.assertEqual(ended.code, code, ended.err)
        self.assertEqual(ended.err.count("WARNING: restart "), 1, ended.err)
        self.assertNotIn("the start did not begin from", ended.err)
        self.assertIn(text, ended.err.rpartition(GOES_ON)[2])

    def test_numbers_that_are_not_finite_end_a_run_that_has_started_again(self):
        # The learning rate is constant, and the decay is more than twice its inverse. So the weights change their sign
        # in each step and grow by 0.4 %, until the norm of the gradients is infinite after about 3,200 steps.
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "50", "--set",
                         "training.optimizer.adamw.weight_decay=668")
        self.kill_when(job, "checkpoint of step 50 written")
        ended = job.wait()
        self.expect_the_end_with(ended, NOT_FINITE, "weir: W0962 at step ")
        self.assertGreater(len(os.listdir(self.place.path("checkpoints"))), 2, "the second start has written some, too")

    def test_an_evaluation_that_fails_ends_a_run_that_has_started_again(self):
        # Steps check the tokens after the first 2,147,483,648, and evaluations read the last ones.
        num_checked, num_bad = 1 << 31, 400
        with open(self.place.path("tokens.bin"), "wb") as file:
            file.truncate(2 * (num_checked + 600))  # a hole, whose tokens are zeros
            file.seek(0, os.SEEK_END)
            file.write(b"\xff\xff" * num_bad)
        with open(self.place.path("job.textproto"), "r+", encoding="utf-8") as file:
            text = file.read()
            file.seek(0)
            file.write(text.replace("data { synthetic {} }",
                                    'data { tokens { path: "tokens.bin" type: U16 held_out: 1e-7 } }'))
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "50")
        self.kill_when(job, "checkpoint of step 50 written")
        ended = job.wait()
        self.assertIn(f"WARNING: the evaluation after step {self.STEPS} failed", ended.err)
        self.expect_the_end_with(ended, BAD_DATA, "weir: W0906 at rank ")

    def test_a_checkpoint_of_another_run_at_the_path_of_resume_is_not_taken(self):
        for run, seed in (("a", "1"), ("b", "2")):
            self.place.train(*self.MESH, "--steps", "5", "--checkpoint", f"{run}/", "--set", f"training.seed={seed}")
        job = self.start("--resume", "a/step-000000005", "--checkpoint", "checkpoints/")
        job.wait_for_text("step 6/")
        os.rename(self.place.path("a"), self.place.path("moved"))
        os.rename(self.place.path("b"), self.place.path("a"))
        self.kill_when(job, "step ")
        ended = job.wait()
        self.assertEqual(ended.code, DAMAGED, ended.err)
        self.assertRegex(" ".join(ended.err.split()),
                         r"W0967 at a/step-000000005: expected the checkpoint of step 5 of run [0-9a-f]{16} .*; found "
                         r"the checkpoint of step 5 of run [0-9a-f]{16} ")
        self.assertNotIn(GOES_ON, ended.err)

    def test_a_restart_that_cannot_begin_names_the_command_that_takes_the_job_up_again(self):
        self.place.write_text()
        self.write_job("--steps", "1000000", "--min-lr", "0.003", "--vocab", "128", "--data", "text.txt")
        job = self.start("--checkpoint", "checkpoints/")
        name = self.ask_for_checkpoint(job, 1)
        os.rename(self.place.path("text.txt"), self.place.path("moved.txt"))
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.assertEqual(ended.code, DAMAGED, ended.err)
        self.assertIn("WARNING: restart 1 after step ", ended.err)
        self.assertRegex(ended.err, rf"{GOES_ON}\S+ train job\.textproto .* --resume checkpoints/{name}\n")
        self.assertIn("text.txt", ended.err.rpartition(GOES_ON)[2], "the reason is the error of the job")

    def test_the_command_that_takes_the_job_up_again_names_a_checkpoint_that_is_whole(self):
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        job = self.start("--checkpoint", "checkpoints/", "--max-restarts", "0")
        first = self.ask_for_checkpoint(job, 1)
        second = self.ask_for_checkpoint(job, 2)
        self.assertNotEqual(first, second)
        self.place.flip_last_bit(f"checkpoints/{second}/rank-00000.safetensors")
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertRegex(ended.err, rf"{GOES_ON}\S+ train job\.textproto .* --resume checkpoints/{first}\n")

    def test_random_kills(self):
        seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={seed}")
        chance = random.Random(seed)
        memory, sockets = census.SharedMemory(), census.Sockets()
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "3", "--keep", "2",
                         "--max-restarts", str(KILLS), "--transport", chance.choice(("shm", "tcp")))
        kills, last = 0, None
        while kills < KILLS and self.may_kill(job, kills, chance):
            sockets.see(job.pids())
            # The same failure of one rank three times in a row at the same place would end the job.
            workers = sorted((pid, rank) for pid, rank in job.workers().items() if rank != last)
            if not workers:
                break
            pid, last = chance.choice(workers)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                break
            kills += 1
        ended = job.wait()
        self.expect_good(ended, kills)
        seconds = [float(text) for text in re.findall(READY, ended.err)]
        if seconds:
            print(f"{kills} kills; ready again after {statistics.median(seconds):.2f} s (median), "
                  f"{max(seconds):.2f} s (most)")
        self.assertEqual(memory.leftovers() + sockets.leftovers() + os.listdir(self.place.temporary), [])
        self.assertEqual(sorted(name for name in os.listdir(self.place.path("checkpoints")) if "step" in name)[2:], [])

    def test_a_limit_ends_the_job_with_the_code_of_the_failure(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5", "--max-restarts", "0")
        self.kill_when(job, "step 1/")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertIn("the job does not start again: the job failed 1 time within 3600 s, and --max-restarts is 0",
                      ended.err)

    def test_a_job_that_ends_for_good_names_the_command_that_takes_it_up_again(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5", "--max-restarts", "0")
        self.kill_when(job, "checkpoint of step 5 written")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        words = shlex.split(ended.err.splitlines()[-1].removeprefix(GOES_ON))
        self.assertEqual(words[:3], [self.place.program, "train", "job.textproto"], ended.err)
        self.assertEqual(words[-2], "--resume", ended.err)
        self.assertRegex(words[-1], r"^checkpoints/step-\d+$")
        self.expect_results_of_no_failure(self.place.start(*words[3:]).wait())

    def test_a_signal_while_the_processes_start_again_leaves_what_the_run_has(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "5")
        self.kill_when(job, "checkpoint of step 5 written")
        job.wait_for_text("restart 1 after step ")
        job.starter.send_signal(signal.SIGTERM)
        ended = job.wait()
        self.assertEqual(ended.code, 130, ended.err)
        done = re.match(r"([\d,]+) steps, loss \d+\.\d+.*?; ([\d,]+) steps took ", ended.out)
        self.assertIsNotNone(done, ended.out)
        self.assertEqual(done.group(1), done.group(2), "all steps are of this run")
        self.assertIn("weights written to weights.st", ended.err)
        self.assertRegex(ended.err.splitlines()[-1], r"^to go on from the last checkpoint: \S+ train job\.textproto "
                                                     r".* --resume checkpoints/step-\d+$")

    def test_what_cannot_start_again_is_refused_first(self):
        for verb in ("check", "train"):
            with self.subTest(verb=verb), self.assertRaisesRegex(AssertionError, "W0756"):
                self.place.run(verb, "job.textproto", *self.FLAGS)


class EndOfTheWork(weir_jobs.JobCase):
    """A process is killed after the last step. Nothing is left to do, and there is nothing to save."""

    def kill_after_the_last_step(self, on_failure):
        # The pipe is full, so the starter waits before it writes the row of the last step.
        name = f"metrics-{on_failure}"
        os.mkfifo(self.place.path(name))
        pipe = os.open(self.place.path(name), os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, pipe)
        try:
            while True:
                os.write(pipe, b" " * 4096)
        except BlockingIOError:
            pass
        job = self.place.start("--mesh", "dp=2", "--processes", "2", "--metrics", name, "--on-failure", on_failure)
        job.wait_for_text("step 1/1 ")
        killed = job.wait_for_workers(2)["1"]
        os.kill(killed, signal.SIGKILL)
        # The starter knows of the end once it has reaped the worker.
        weir_jobs.until("the end of the worker", lambda: not os.path.exists(f"/proc/{killed}"))
        os.read(pipe, 1 << 20)
        return job.wait()

    def test_a_process_that_ends_after_the_work_costs_nothing(self):
        self.write_job("--steps", "1")
        for on_failure in ("stop", "restart", "elastic"):
            with self.subTest(on_failure=on_failure):
                ended = self.kill_after_the_last_step(on_failure)
                self.assertEqual(ended.code, 0, ended.err)
                self.assertTrue(ended.out.startswith("1 step, loss "), ended.out)
                self.assertIn("A process failed after ", ended.err)
                self.assertIn("first failure: rank 1 (pid ", ended.err)
                self.assertIn("nothing is lost, and the job does not start again", ended.err)
                self.assertNotIn("restart 1", ended.err)


if __name__ == "__main__":
    unittest.main()
