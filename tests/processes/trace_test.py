"""Tests the use of a trace when a job goes wrong.

A job that fails leaves the trace of all ranks, also of those whose processes were killed. A rank that is slower than
its equals is named while the job runs, and in the report of its trace.
"""

import json
import os
import random
import signal
import time
import unittest

from tests.processes import weir_jobs

NAMED_S = weir_jobs.LIMIT_S  # the longest time until a slow rank is named
STEPS = 30
STOPPED_S = 1.0  # a process stands still for so long in one step, and for longer if its steps are long
TRIES = 10  # to stop a process in a step, and not between two, while other programs do not disturb the steps beside it
NEAR = 0.05  # of a step, between its time in the metrics and in the trace
LONGER = 2  # times as long as a step beside it is a step that stood still


class Trace(weir_jobs.JobCase):
    def report(self, *words):
        return self.place.run("trace", "report", "t.pftrace", *words).stdout

    def expect_no_parts(self):
        for _, _, names in os.walk(self.place.path("weir-logs")):
            self.assertEqual([name for name in names if "pftrace" in name], [])

    def end_by(self, kill, *arguments):
        """Runs a job of four ranks in four processes until kill({ranks: pid}) ends it."""
        self.place.remove("t.pftrace")
        job = self.place.start("--mesh", "dp=2,tp=2", "--processes", "4", "--trace", "t.pftrace", *arguments)
        workers = job.wait_for_workers(4)
        job.wait_for_step()
        kill(workers)
        ended = job.wait()
        self.assertNotEqual(ended.code, 0)
        return ended

    def expect_all_ranks(self, ended, victim, what):
        """Expects that the trace has the last acts of the victim, too, and that it marks the failure."""
        self.assertIn("trace of the failed job written to t.pftrace; from memory that outlived the process: "
                      f"rank {victim}\n", ended.err)
        text = " ".join(self.report().split())
        self.assertIn("4 devices, 1 stage, 2 micro-batches", text)
        self.assertIn(f"The process of rank {victim} failed: {what}.", text)
        report = json.loads(self.report("--json"))
        self.assertEqual([device["rank"] for device in report["devices"]], [0, 1, 2, 3])
        self.assertGreater(report["step_ns"], 0)
        self.assertTrue(all(device["busy"] > 0 for device in report["devices"]))
        state = report["last_state"]
        self.assertEqual(state["missing_ranks"], [])
        self.assertEqual([(failure["rank"], failure["text"]) for failure in state["failures"]], [(victim, what)])
        # Nobody is further than the others wait for: the last acts of the victim are there.
        steps = [rank["step"] for rank in state["ranks"] if "step" in rank]
        self.assertTrue(steps and max(steps) - min(steps) <= 2, state)
        self.assertGreaterEqual(min(steps), report["last_step"])
        self.expect_no_parts()

    def test_when_a_worker_is_killed_its_last_acts_are_in_the_trace(self):
        self.write_job("--steps", "1000000")
        for victim in range(4):  # also rank 0, which otherwise describes the job
            with self.subTest(victim=victim):
                ended = self.end_by(lambda workers, victim=victim: os.kill(workers[str(victim)], signal.SIGKILL))
                self.expect_all_ranks(ended, victim, "killed by SIGKILL (9)")

    def test_when_a_worker_freezes_its_last_acts_are_in_the_trace(self):
        self.write_job("--steps", "1000000")
        ended = self.end_by(lambda workers: os.kill(workers["3"], signal.SIGSTOP),
                            "--heartbeat", "0.3", "--dead-after", "3")
        self.expect_all_ranks(ended, 3, "frozen")

    def test_a_job_that_is_interrupted_leaves_a_trace_of_all_ranks(self):
        self.write_job("--steps", "1000000")
        for processes in ([], ["--processes", "2"]):
            with self.subTest(processes=processes):
                self.place.remove("t.pftrace")
                job = self.place.start("--mesh", "dp=2", "--trace", "t.pftrace", *processes)
                job.wait_for_step()
                os.kill(job.starter.pid, signal.SIGINT)
                self.assertEqual(job.wait().code, 130)
                self.assertEqual([device["rank"] for device in json.loads(self.report("--json"))["devices"]], [0, 1])

    def test_a_rank_that_is_slower_than_its_equals_is_named_while_the_job_runs_and_in_the_report(self):
        self.place.write_job("--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "256", "--sequence", "64",
                             "--batch", "16", "--steps", "1000000")
        job = self.place.start("--mesh", "dp=2", "--processes", "2", "--threads", "1", "--trace", "t.pftrace",
                               "--dead-after", "60")
        slow = job.wait_for_workers(2)["1"]
        job.wait_for_step()
        end = time.monotonic() + NAMED_S
        while "is slow" not in job.errors():
            self.assertLess(time.monotonic(), end, job.errors())
            weir_jobs.hold_back(slow)
        os.kill(job.starter.pid, signal.SIGINT)
        ended = job.wait()
        self.assertRegex(ended.err, r"WARNING: rank 1 is slow: for \d+ s its acts have taken \d+\.\d times as long "
                                    r"as the same acts of rank 0; (it had a core for only \d+ % of that time"
                                    r"|its device is slower, or other programs use its core now and then)")
        self.assertEqual(ended.err.count("is slow"), 1)
        report = json.loads(self.report("--json"))
        slow_ranks = report["why_slow"]["slow_ranks"]
        self.assertEqual([rank["rank"] for rank in slow_ranks], [1])
        self.assertGreater(slow_ranks[0]["factor"], 1.3)
        # Beside other programs no rank has a core for long enough. The advice is then to end these programs.
        cause = (r"(rank 1 is slow: its acts take \d+\.\d times as long as the same acts of rank 0"
                 r"|cores are missing: rank 1 has one for only)")
        self.assertRegex(report["why_slow"]["advice"], cause)
        # Too few acts may be measured: an act is, if the one before it of the same actor was long.
        self.assertLess(report["devices"][1].get("core_share", 0), 0.75)
        self.assertRegex(self.report(), rf"(?m)^  so: {cause}")

    def seconds_of_steps(self):
        """Returns the time of each step by the metrics, by its number."""
        with open(self.place.path("metrics.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.endswith("\n")]
        return {row["step"]: row["step_seconds"] for row in rows}

    def traced_seconds(self, step):
        """Returns the time of a step by the trace."""
        path = json.loads(self.report("--json", "--step", str(step)))["why_slow"]["critical_path"]
        self.assertEqual((path["first_step"], path["last_step"]), (step, step))
        return path["step_ns"] * 1e-9

    def stop_in_a_step(self):
        """Runs a job that writes the time of each single step, and stops it once. Returns these times."""
        for name in ("t.pftrace", "metrics.jsonl", "c.safetensors"):
            self.place.remove(name)
        # A checkpoint of each step ends each burst of steps, so that a row of the metrics is of its step alone.
        job = self.place.start("--trace", "t.pftrace", "--metrics", "metrics.jsonl", "--checkpoint", "c.safetensors",
                               "--checkpoint-every", "1")
        weir_jobs.until("the fifth step", lambda: os.path.exists(self.place.path("metrics.jsonl"))
                        and len(self.seconds_of_steps()) >= 5)
        longest = max(list(self.seconds_of_steps().values())[1:])
        time.sleep(random.random() * longest)
        os.kill(job.starter.pid, signal.SIGSTOP)
        time.sleep(max(STOPPED_S, 2 * LONGER * longest))
        os.kill(job.starter.pid, signal.SIGCONT)
        self.assertEqual(job.wait().code, 0)
        return self.seconds_of_steps()

    def test_a_step_has_one_number_in_the_metrics_and_in_the_report_of_the_trace(self):
        self.place.write_job("--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "256", "--sequence", "64",
                             "--batch", "16", "--steps", str(STEPS))
        for _ in range(TRIES):
            seconds = self.stop_in_a_step()
            self.assertEqual(sorted(seconds), list(range(1, STEPS + 1)))
            stopped = max(range(2, STEPS), key=seconds.get)
            beside = max(seconds[stopped - 1], seconds[stopped + 1])
            traced = self.traced_seconds(stopped)
            if abs(traced / seconds[stopped] - 1) <= NEAR and seconds[stopped] > LONGER * beside:
                break
        self.assertAlmostEqual(traced / seconds[stopped], 1, delta=NEAR, msg=f"step {stopped} of {seconds}")
        self.assertGreater(seconds[stopped], LONGER * beside, f"step {stopped} of {seconds}")
        for step in (stopped - 1, stopped + 1):
            self.assertLess(self.traced_seconds(step), traced / 2)
        report = json.loads(self.report("--json"))
        self.assertEqual((report["left_out_step"], report["first_step"], report["last_step"]), (1, 2, STEPS))
        text = " ".join(self.report().split())
        self.assertIn(f"steps 2 to {STEPS}, ", text)
        self.assertIn("; step 1, the first whole one, is left out: it may fill pipelines and caches", text)


if __name__ == "__main__":
    unittest.main()
