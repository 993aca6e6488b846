"""Tests a job whose calls are placed: two towers in several processes, with checkpoints, a trace and a page.

The job is docs/examples/two_towers.textproto.
"""

import json
import os
import shutil
import unittest

from tests.processes import weir_jobs

JOB = os.path.join("docs", "examples", "two_towers.textproto")


class Placement(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        shutil.copy(JOB, self.place.path("job.textproto"))

    def train(self, name, *arguments):
        self.place.remove(f"{name}.jsonl")
        self.place.train("--metrics", f"{name}.jsonl", "--save", f"{name}.st", *arguments)

    def losses(self, name):
        return [row["loss"] for row in self.place.metrics(f"{name}.jsonl") if "loss" in row]

    def expect_same(self, name, other):
        self.assertEqual(self.place.metrics(f"{name}.jsonl"), self.place.metrics(f"{other}.jsonl"))
        self.assertTrue(self.place.bytes_of(f"{name}.st") == self.place.bytes_of(f"{other}.st"),
                        f"{name} and {other} differ")

    def test_any_number_of_processes_gives_the_bits_of_one(self):
        for mesh, counts in (("pp=3", (3,)), ("pp=3,dp=2", (2, 3)), ("pp=3,tp=2", (6,))):
            self.train("one", "--mesh", mesh)
            self.assertEqual(len(self.losses("one")), 3)
            for count in counts:
                with self.subTest(mesh=mesh, processes=count):
                    self.train("many", "--mesh", mesh, "--processes", str(count))
                    self.expect_same("many", "one")

    def test_the_losses_are_those_of_one_device(self):
        self.train("one", "--mesh", "")
        self.train("placed", "--processes", "3")
        self.assertEqual(self.losses("placed"), self.losses("one"))

    def test_a_run_goes_on_from_its_checkpoint_on_other_places(self):
        self.train("whole", "--steps", "6")
        self.place.train("--steps", "3", "--mesh", "", "--checkpoint", "half.st")
        # One device made the checkpoint, and three go on.
        self.train("rest", "--steps", "6", "--resume", "half.st", "--processes", "3")
        self.assertEqual(self.losses("rest"), self.losses("whole")[3:])

    def test_a_trace_claims_no_formula_and_the_plan_shows_the_graph(self):
        self.place.train("--trace", "run.pftrace")
        report = json.loads(self.place.run("trace", "report", "run.pftrace", "--json").stdout)
        self.assertEqual(report["stages"], 3)
        self.assertEqual(report["stages_in_a_row"], 2)
        self.assertEqual(report["bubble_formula"], 0)
        plan = json.loads(self.place.run("plan", "job.textproto", "--json").stdout)["schedule"]
        self.assertEqual([part["reads_parts"] for part in plan["parts"]], [[], [], [0, 1]])
        self.assertNotIn("bubble_of_even_parts", plan)
        screen = self.place.run("plan", "job.textproto", "--schedule").stdout
        self.assertIn("after stages 0 and 1", screen)
        self.place.run("view", "run.pftrace", "--export", "run.html")
        self.assertGreater(os.path.getsize(self.place.path("run.html")), 1000)


if __name__ == "__main__":
    unittest.main()
