"""Tests a job whose calls are placed: two towers in several processes, with checkpoints, a trace and a page.

The jobs are docs/examples/two_towers.textproto, and unequal_towers.textproto, whose stages have meshes of their own.
"""

import json
import os
import shutil
import unittest

from tests.processes import weir_jobs

JOB = os.path.join("docs", "examples", "two_towers.textproto")
UNEQUAL = os.path.join("docs", "examples", "unequal_towers.textproto")


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

    def test_stages_of_unequal_size_train_in_any_number_of_processes(self):
        self.train("device", "--mesh", "")
        shutil.copy(UNEQUAL, self.place.path("job.textproto"))
        self.train("one")
        for loss, of_device in zip(self.losses("one"), self.losses("device"), strict=True):
            self.assertLess(abs(loss - of_device), 1e-5 * of_device)
        for count in (2, 3, 7):
            with self.subTest(processes=count):
                self.train("many", "--processes", str(count))
                self.expect_same("many", "one")

    def test_a_checkpoint_goes_from_unequal_stages_to_equal_ones_and_back(self):
        shutil.copy(UNEQUAL, self.place.path("unequal.textproto"))

        def expect_near(name, other):
            for loss, expected in zip(self.losses(name), self.losses(other)[3:], strict=True):
                self.assertLess(abs(loss - expected), 1e-5 * expected)

        self.train("whole", "--mesh", "", "--steps", "6")
        shutil.copy(self.place.path("unequal.textproto"), self.place.path("job.textproto"))
        for zero in ("0", "3"):
            for ending in (".st", "/"):
                with self.subTest(zero=zero, ending=ending):
                    zeros = ("--set", f"training.zero_stage={zero}")
                    unequal, equal = f"unequal{zero}{ending}", f"equal{zero}{ending}"
                    self.place.train("--steps", "3", "--checkpoint", unequal, *zeros)
                    self.train("rest", "--mesh", "", "--steps", "6", "--resume", unequal)
                    expect_near("rest", "whole")
                    self.place.train("--steps", "3", "--mesh", "pp=1,dp=2", "--checkpoint", equal)
                    self.train("rest", "--steps", "6", "--resume", equal, "--processes", "3", *zeros)
                    expect_near("rest", "whole")

    def test_plan_and_simulation_know_the_devices_of_every_stage(self):
        shutil.copy(UNEQUAL, self.place.path("job.textproto"))
        plan = json.loads(self.place.run("plan", "job.textproto", "--json").stdout)
        self.assertEqual(len(plan["ranks"]), 7)
        self.assertEqual(plan["mesh"], "pp=3: stage 0 dp=2,tp=1, stage 1 dp=2,tp=2, stage 2 dp=1,tp=1")
        screen = self.place.run("plan", "job.textproto").stdout
        self.assertIn("7 devices", screen)
        report = json.loads(self.place.run("sim", "job.textproto", "--json").stdout)
        self.assertEqual(report["ranks"], 7)
        for code, words in (("W0705", ("sim", "job.textproto", "--symmetry", "on")),
                            ("W0498", ("train", "job.textproto", "--place", "pp,dp,tp"))):
            with self.assertRaisesRegex(AssertionError, code):
                self.place.run(*words)

    def test_a_search_finds_rules_for_the_meshes_of_the_stages(self):
        shutil.copy(UNEQUAL, self.place.path("job.textproto"))
        self.place.run("search", "job.textproto", "--fix", "settings", "-o", "found.textproto")
        plan = json.loads(self.place.run("plan", "found.textproto", "--json").stdout)
        self.assertEqual(plan["mesh"], "pp=3: stage 0 dp=2,tp=1, stage 1 dp=2,tp=2, stage 2 dp=1,tp=1")

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
