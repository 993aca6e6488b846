"""Tests the parts of a step by cause, as a run counts them while it goes on, against the report of its trace."""

import json
import re
import unittest
import urllib.request

from tests.processes import weir_jobs

STEPS = 60  # fewer than a trace keeps
TRIES = 10  # of a measurement that other programs may disturb
NEAR = 0.03  # of a step, between a share counted live and that of the report
JOINT = dict.fromkeys(("waits for tokens under way", "bubble of the pipeline", "waits for late ranks"), "waits for other ranks")


class StepParts(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        # A step takes tens of milliseconds, so that what a burst of steps costs around them is little.
        self.place.write_job("--layers", "2", "--hidden", "128", "--heads", "4", "--ffn", "512", "--sequence", "64",
                             "--batch", "16", "--micro-batches", "2", "--steps", str(STEPS))

    def run_and_watch(self, *arguments):
        """Runs the job to its end, and returns its record: the state and the history."""
        job = self.place.start("--view", "--threads", "1", "--trace", "t.pftrace", *arguments)
        job.wait_for_text("view: http")
        address = re.search(r"^view: (http://\S+)$", job.errors(), re.MULTILINE).group(1)

        def told():
            with urllib.request.urlopen(address + "live?from=0") as answer:
                return json.load(answer)

        record = weir_jobs.until("the end of the run", lambda: (now := told()) and "end" in now["state"] and now)
        self.assertEqual(job.wait().code, 0)
        return record["state"], [json.loads(line) for line in record["history"].splitlines()]

    def counted(self, *arguments):
        """Returns the shares by cause of all steps but the first, as the run counted them."""
        state, history = self.run_and_watch(*arguments)
        steps = [event["step"] for event in history if "step" in event]
        sums, before = [0] * len(state["part_names"]), steps[0]["step"]
        for step in steps[1:]:
            self.assertAlmostEqual(sum(step["parts"]), 1, delta=0.001)
            seconds = (step["step"] - before) * step["step_seconds"]
            sums = [total + seconds * part for total, part in zip(sums, step["parts"])]
            before = step["step"]
        self.assertEqual(before, STEPS)
        return {name: part / sum(sums) for name, part in zip(state["part_names"], sums)}

    def reported(self):
        shares = {}
        for part in json.loads(self.place.run("trace", "report", "t.pftrace", "--json").stdout)["why_slow"]["parts"]:
            name = JOINT.get(part["name"], part["name"])
            shares[name] = shares.get(name, 0) + part["share"]
        return shares

    def test_what_a_run_counts_is_what_its_trace_shows(self):
        for mesh in ("dp=2", "pp=2", "tp=2"):
            for processes in ((), ("--processes", "2")):
                with self.subTest(mesh=mesh, processes=processes):
                    for _ in range(TRIES):
                        counted, reported = self.counted("--mesh", mesh, *processes), self.reported()
                        self.assertEqual(set(counted), set(reported))
                        apart = max(abs(counted[name] - reported[name]) for name in counted)
                        if apart <= NEAR:
                            break
                    self.assertLessEqual(apart, NEAR, f"counted {counted}, reported {reported}")
                    self.assertGreater(counted["compute"], 0.1)


if __name__ == "__main__":
    unittest.main()
