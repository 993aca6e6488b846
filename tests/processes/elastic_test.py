"""Kills workers of jobs whose other processes live on. The jobs end with the bits of a run without failure.

WEIR_TEST_SEED repeats the choices of a run. tests/processes/kill_table.py kills many more.
"""

import os
import random
import re
import shutil
import signal
import statistics
import unittest

from tests.processes import census
from tests.processes import kill_table
from tests.processes import weir_jobs

LOSSES = 3
DONE = r"a step is done again, (\d+\.\d+) s after the failure: (.*)"
KILLED = 128 + signal.SIGKILL
INTERRUPTED = 130
# Sums in another order differ in their last bits, and training lets the difference grow with the steps.
NEAR_STEPS = 20
TRIES = 5


def kill(job, *ranks, also=None):
    """Kills the workers of these ranks at once. Returns {rank: pid} of all workers before.

    The starter stands still meanwhile, so that it sees all ends together, and what also() does, however slow this
    process is.
    """
    workers = job.wait_for_workers(4)
    os.kill(job.starter.pid, signal.SIGSTOP)
    try:
        for rank in ranks:
            os.kill(workers[rank], signal.SIGKILL)
        weir_jobs.until("the ends of the workers", lambda: not any(census.is_running(workers[rank]) for rank in ranks))
        if also is not None:
            also()
    finally:
        os.kill(job.starter.pid, signal.SIGCONT)
    return workers


class Elastic(weir_jobs.FailureCase):
    STEPS = kill_table.steps_for(LOSSES)
    FLAGS = ("--on-failure", "elastic")

    def expect_good(self, ended):
        """Expects the end of a run without failure. Returns (seconds, how) of each recovery that led to a step."""
        self.expect_results_of_no_failure(ended)
        return [(float(seconds), how) for seconds, how in re.findall(DONE, ended.err)]

    def test_the_others_live_on_and_give_the_lost_states(self):
        job = self.start()
        job.wait_for_step()
        before = kill(job, "1")
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.assertIn("states from the memory of rank", self.expect_good(ended)[0][1])
        self.assertIn("; 1 recovery\n", ended.out)
        self.assertIn("first failure: rank 1 (pid ", ended.err)

    def test_without_a_replica_the_others_live_on_with_the_last_checkpoint(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "20")
        job.wait_for_text("checkpoint of step 20 written")
        before = kill(job, "1", "3")
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in ("0", "2") if before[rank] != after[rank]], [])
        self.assertIn("all states come from checkpoints/step-", self.expect_good(job.wait())[-1][1])

    def test_a_recovery_from_files_says_which_checkpoint_somebody_has_removed(self):
        job = self.start("--checkpoint", "checkpoints/")
        first = self.ask_for_checkpoint(job, 1)
        second = self.ask_for_checkpoint(job, 2)
        self.assertNotEqual(first, second)
        shutil.rmtree(self.place.path(f"checkpoints/{second}"))
        kill(job, "1", "3")
        ended = job.wait()
        self.assertIn(f"all states come from checkpoints/{first}", self.expect_good(ended)[-1][1])
        self.assertIn(f"WARNING: the checkpoint checkpoints/{second} is passed over: it is no longer there",
                      ended.err)

    def test_a_new_process_that_ends_at_once_is_replaced_at_once(self):
        job = self.start()
        job.wait_for_step()
        lost = kill(job, "1")["1"]
        again = weir_jobs.until("a new process", lambda: [pid for pid, rank in job.workers().items()
                                                          if rank == "1" and pid != lost])
        os.kill(again[0], signal.SIGKILL)  # the process has said no hello yet
        recoveries = self.expect_good(job.wait())
        # The job waits 30 s for a hello of a process that lives.
        self.assertLess(recoveries[-1][0], 20)

    def test_a_new_process_that_is_stopped_at_once_is_replaced_and_the_others_live_on(self):
        job = self.start("--dead-after", "1.5")
        job.wait_for_step()
        before = job.wait_for_workers(4)
        stopped = job.stop_new_worker(before["1"])
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.expect_good(ended)
        self.assertIn("; 2 recoveries\n", ended.out)
        self.assertRegex(ended.err, rf"first failure: rank 1 \(pid {stopped}\): has not said hello within \d+\.\d s; "
                                    r"its process is stopped \(state T\)\n")

    def test_logs_that_somebody_has_removed_do_not_hinder_a_recovery(self):
        job = self.start()
        job.wait_for_step()
        before = kill(job, "1", also=lambda: shutil.rmtree(self.place.path("weir-logs")))
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(4)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.expect_good(ended)
        log = os.path.join(*re.search(r"  logs: (\S+); its own: (\S+)\n", ended.err).groups())
        self.assertTrue(os.path.exists(self.place.path(log)), "the report names a log that is gone: " + ended.err)

    def test_if_all_are_killed_at_once_the_line_names_no_others(self):
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "20")
        job.wait_for_text("checkpoint of step 20 written")
        kill(job, "0", "1", "2", "3")
        job.wait_for_text("a step is done again")
        ended = job.wait()
        self.expect_good(ended)
        self.assertRegex(ended.err, r"recovery 1 after step \d+: the processes of (rank \d and ){3}rank \d start anew, "
                                    r"and no other lives on")
        self.assertNotIn("the others live on", ended.err)

    def test_random_losses(self):
        seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={seed}")
        series = kill_table.Series(LOSSES, self.good_weights, self.good_rows)
        losses, faults, step_s = series.run(random.Random(seed), 2 * LOSSES)
        print(kill_table.table(losses, statistics.median(step_s)))
        self.assertEqual(faults, [], "\n".join(faults))

    def test_two_that_are_killed_at_once_are_one_loss_with_both_names(self):
        job = self.start("--buddy-every", "5")
        job.wait_for_step()
        kill(job, "0", "3")
        job.wait_for_text("a step is done again")
        ended = job.wait()
        self.expect_good(ended)
        # Which of them ends first is not known.
        self.assertRegex(ended.err, r"recovery 1 after step \d+: the processes of rank [03] and rank [03] start anew")
        self.assertRegex(ended.err, r"  also failed: rank [03] \(pid \d+\): killed by SIGKILL \(9\)\n")
        self.assertIn("; 1 recovery\n", ended.out)
        self.assertIn("no buddy copies are made on this mesh: every state has a replica in another process, so the loss "
                      "of one process costs no state; if all replicas", ended.err)

    def test_a_signal_at_the_moment_of_a_loss_ends_the_job_with_what_it_has(self):
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        for number in range(TRIES):
            folder = f"checkpoints{number}/"
            job = self.start("--checkpoint", folder, "--checkpoint-every", "20")
            # The states in memory may be as old as those before the first step, and then there would be nothing to
            # save. The checkpoint bounds what is lost.
            job.wait_for_text("checkpoint of step 20 written")
            kill(job, "1", also=lambda: job.starter.send_signal(signal.SIGTERM))
            ended = job.wait()
            self.assertEqual(ended.code, INTERRUPTED, ended.err)
            self.assertRegex(ended.err, r"interrupted after step \d+ of ")
            if "the job does not start again" not in ended.err:
                break
            # The others could not go on.
            self.assertIn(f"its last checkpoint is {folder}step-", ended.err)
        self.assertIn("then the job ends, because a signal asks it to", ended.err)
        self.assertIn("weights written to weights.st", ended.err)
        self.assertIn(f"checkpoint written to {folder}step-", ended.err)

    def test_a_process_that_stays_slow_is_replaced_once(self):
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        # The process stands still for a part of a second each time, which is no reason to count it as frozen.
        job = self.start("--on-slow", "replace", "--dead-after", "60")
        job.wait_for_step()
        slow = job.wait_for_workers(4)["2"]

        def is_replaced():
            try:
                weir_jobs.hold_back(slow)
            except ProcessLookupError:
                return True
            return "a step is done again" in job.errors()

        weir_jobs.until("a replacement", is_replaced)
        job.wait_for_text("a step is done again")
        self.assertNotEqual(job.wait_for_workers(4)["2"], slow)
        job.starter.send_signal(signal.SIGTERM)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)
        self.assertRegex(ended.err, r"WARNING: rank 2 is slow: for \d+ s its acts have taken \d+\.\d times as long")
        self.assertRegex(ended.err, r"first failure: rank 2 \(pid \d+\): slow: for \d+ s its acts")
        self.assertIn("the process of rank 2 starts anew, and the others live on", ended.err)
        self.assertNotIn("must be done again", ended.err)

    def test_without_a_replacement_the_others_go_on_with_fewer_replicas_from_memory(self):
        """No process may start anew, and the step has twice as many micro-batches on half of the ranks."""
        job = self.start("--max-restarts", "0", "--min-devices", "2", "--checkpoint", "checkpoints/")
        job.wait_for_step()
        before = kill(job, "3")
        job.wait_for_text("a step is done again")
        self.assertTrue(set(job.workers()) <= {before[rank] for rank in ("0", "1", "2")})
        ended = job.wait()
        self.assertEqual(ended.code, 0, ended.err)
        self.assertRegex(ended.err, r"the process of rank 3 does not come back \(.*\), and the others go on with dp=1 "
                                    r"instead of dp=2, and \d+ micro-batches instead of \d+")
        self.assertRegex(ended.err, r"epoch 2 goes on without rank 3, on 2 devices \(.*\) in 2 processes, with states "
                                    r"from the memory of rank")
        self.assertIn("; the process of rank 2 is sound and ends, because the smaller mesh has no rank for it",
                      ended.err)
        before, after = re.findall(r"^a lost process costs .*$", ended.err, re.M)
        self.assertIn("costs the steps since the last copies in memory", before)
        self.assertIn("if all copies of a state are lost at once, that costs all steps of the run", before)
        self.assertRegex(after, r"^a lost process costs all steps of the run, .*: no other process has its states "
                                r"\(--buddy-every N")
        self.assertRegex(ended.err, r"micro-batches instead of \d+\nthe mesh grows again when the lost processes can "
                                    r"start: that is tried in (59m|1h).*, when fewer failures lie within "
                                    r"--restart-window \(--max-restarts\)\n")
        rows = self.place.metrics("metrics.jsonl")
        self.assertEqual([row["step"] for row in rows], sorted(self.good_rows))
        change = int(re.search(r"recovery 1 after step (\d+)", ended.err).group(1))
        for row in rows[:change + NEAR_STEPS]:
            good = self.good_rows[row["step"]]["loss"]
            self.assertLess(abs(row["loss"] - good), 1e-5 * max(1, abs(good)), row)
        self.assertEqual(self.place.processes(), [])

    def test_a_job_whose_other_processes_cannot_go_on_says_why(self):
        self.place.write_text()
        self.write_job("--steps", "1000000", "--min-lr", "0.003", "--vocab", "128", "--data", "text.txt")
        job = self.start("--max-restarts", "0", "--min-devices", "2", "--checkpoint", "checkpoints/",
                         "--checkpoint-every", "20")
        job.wait_for_text("checkpoint of step 20 written")
        # The plan of the smaller mesh is made from the data, and the workers read on what they have opened.
        os.rename(self.place.path("text.txt"), self.place.path("moved.txt"))
        kill(job, "3")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertRegex(ended.err, r"WARNING: the other processes could not go on: .*text\.txt")
        self.assertIn("the job does not start again: the job failed 1 time within 3600 s", ended.err)
        self.assertRegex(ended.err.splitlines()[-1], r"^to go on from the last checkpoint: \S+ train job\.textproto "
                                                     r"--mesh dp=2,tp=2 .* --resume checkpoints/step-\d+$")

    def test_a_limit_ends_the_job_with_the_code_of_the_failure(self):
        job = self.start("--max-restarts", "0")
        job.wait_for_step()
        kill(job, "2")
        ended = job.wait()
        self.assertEqual(ended.code, KILLED, ended.err)
        self.assertIn("the job does not start again: the job failed 1 time within 3600 s, and --max-restarts is 0",
                      ended.err)


class Buddies(weir_jobs.FailureCase):
    """Nobody else holds the states of a stage, and the job writes no checkpoint."""

    MESH = ("--mesh", "pp=2", "--processes", "2")
    STEPS = "400"
    FLAGS = ("--on-failure", "elastic", "--buddy-every", "5")

    def test_a_stage_comes_back_from_the_memory_of_its_buddy(self):
        job = self.start()
        job.wait_for_text("its buddy keeps what has no replica")
        before = job.wait_for_workers(2)
        os.kill(before["1"], signal.SIGKILL)
        job.wait_for_text("a step is done again")
        after = job.wait_for_workers(2)
        self.assertEqual([rank for rank in before if before[rank] != after[rank]], ["1"])
        ended = job.wait()
        self.expect_results_of_no_failure(ended)
        self.assertIn("from the memory of rank 0 (buddy)", re.findall(DONE, ended.err)[0][1])
        self.assertEqual(ended.err.count("a lost process costs about 5 steps at most (--buddy-every)"), 1, ended.err)


class Growth(weir_jobs.JobCase):
    """A mesh that has become smaller grows again. No process may start anew within a second after a failure."""

    MESH = ("--mesh", "dp=2,tp=2", "--processes", "4")
    FLAGS = ("--on-failure", "elastic", "--max-restarts", "0", "--restart-window", "1", "--min-devices", "2",
             "--grow-after", "0.2", "--metrics", "metrics.jsonl")
    # So low that the last bits, in which meshes differ, stay the last bits over all steps of a test.
    RATE = "0.00001"

    def setUp(self):
        super().setUp()
        small = [self.RATE if word == "0.003" else word for word in weir_jobs.SMALL]
        self.place.write_job(*small, "--min-lr", self.RATE, "--steps", "1000000")

    def start(self, *options):
        return self.place.start(*self.MESH, *self.FLAGS, *options)

    def lose_rank_3(self, job):
        """Returns {rank: pid} of the workers before."""
        job.wait_for_step()
        before = kill(job, "3")
        job.wait_for_text("a step is done again")
        return before

    def new_processes(self, job, before):
        """Waits until processes come back, and returns their pids."""
        def find():
            self.assertIsNone(job.starter.poll(), job.errors())
            return [pid for pid in job.workers() if pid not in before.values()]

        return weir_jobs.until("new processes", find)

    def end_after_more_steps(self, job):
        """Lets the job do some steps and end. Expects the losses of a run without a failure, each step once."""
        def steps():
            return self.place.bytes_of("metrics.jsonl").count(b"\n")

        self.assertIsNone(job.starter.poll(), job.errors())
        enough = steps() + NEAR_STEPS
        weir_jobs.until("more steps", lambda: steps() > enough or job.starter.poll() is not None)
        job.starter.send_signal(signal.SIGTERM)
        ended = job.wait()
        self.assertEqual(ended.code, INTERRUPTED, ended.err)
        self.assertEqual(self.place.processes(), [])
        rows = self.place.metrics("metrics.jsonl")
        self.assertEqual([row["step"] for row in rows], list(range(1, len(rows) + 1)), "each step has one row")
        self.place.train(*self.MESH, "--steps", str(len(rows)), "--metrics", "good.jsonl")
        for row, good in zip(rows, self.place.metrics("good.jsonl"), strict=True):
            self.assertLess(abs(row["loss"] - good["loss"]), 1e-5 * max(1, abs(good["loss"])), row)
        return ended

    def test_a_mesh_that_became_smaller_grows_again_with_the_states_of_those_who_live(self):
        job = self.start()
        before = self.lose_rank_3(job)
        job.wait_for_text("the mesh has grown after step")
        after = job.wait_for_workers(4)
        self.assertEqual(sorted(rank for rank in before if before[rank] == after[rank]), ["0", "1"])
        ended = self.end_after_more_steps(job)
        self.assertRegex(ended.err, r"the mesh has grown after step \d+, and the steps have waited \d+\.\d+ s: epoch 3 "
                                    r"has new processes for rank 2 and rank 3, on 4 devices \(dp=2,tp=2\) in 4 processes, "
                                    r"with states from the memory of ranks 0-1 \(")
        self.assertIn("; 1 recovery; 1 growth\n", ended.out)

    def test_a_new_process_that_is_lost_while_the_mesh_grows_leaves_the_others_with_their_states(self):
        job = self.start()
        before = self.lose_rank_3(job)
        os.kill(self.new_processes(job, before)[0], signal.SIGKILL)
        job.wait_for_text("recovery 2 after step")
        ended = self.end_after_more_steps(job)
        self.assertIn("; 2 recoveries", ended.out)

    def test_a_process_with_states_that_is_lost_while_the_mesh_grows_is_replaced_by_the_new_ones(self):
        """Rank 0 of the smaller mesh has no replica, so its states come from the last checkpoint."""
        job = self.start("--checkpoint", "checkpoints/", "--checkpoint-every", "10")
        job.wait_for_text("checkpoint of step 10 written")
        before = self.lose_rank_3(job)
        self.new_processes(job, before)
        os.kill(before["0"], signal.SIGKILL)
        job.wait_for_text("recovery 2 after step")
        ended = self.end_after_more_steps(job)
        self.assertRegex(ended.err, r"recovery 2 after step \d+: the process of rank 0 does not come back")


if __name__ == "__main__":
    unittest.main()
