"""Tests that the page of `weir view` shows the simulation of 1,024 devices, where a rank stands for its stage."""

import json
import re
import unittest

from tests.view import view_case

RANKS, STAGES = 1024, 4
MESH = "pp=4,dp=64,tp=4"
CLUSTER = """
    name: "128 hosts"
    device {
      name: "accelerator" memory_bytes: 8e10 act_ns: 500 kernel_ns: 1000 bytes_per_second: 1e12
      peak { dtype: "f32" flops_per_second: 1e13 efficiency: 0.5 }
    }
    host { device: "accelerator" devices: 8 count: 128 }
    within_host { latency_ns: 2000 bytes_per_second: 1e11 message_ns: 300 }
    between_hosts { latency_ns: 9000 bytes_per_second: 2e10 message_ns: 300 shared: DEVICE }
"""
VIEWS = {"verdict": r"A step.* takes ", "path": "Critical path of step", "timeline": "Timeline",
         "pipeline": "Pipeline of step", "pressure": "Back-pressure", "registers": "Registers",
         "memory": "Memory of rank", "devices": "Devices and ranks", "transfers": "Layouts and boxings",
         "skew": "The same work on different ranks"}
WORKS_ON_ALL = "return [...document.querySelectorAll('tbody tr')].map(r => Number(r.cells[1].innerText))"


class Symmetry(view_case.ViewCase):
    def setUp(self):
        super().setUp()
        self.place.write_job("--layers", "4", "--hidden", "64", "--heads", "4", "--sequence", "32", "--batch", "512",
                             "--micro-batches", "4")
        with open(self.place.path("cluster.textproto"), "w", encoding="utf-8") as file:
            file.write(CLUSTER)

    def simulate(self):
        """Simulates a few steps, with a trace, and returns the report of the simulation."""
        return json.loads(self.place.run("sim", "job.textproto", "--cluster", "cluster.textproto", "--mesh", MESH,
                                         "--steps", "4", "--trace", "sim.pftrace", "--json").stdout)

    def open(self, address, view):
        self.browser.open(f"{address}#view={view}")
        return re.sub(r"\s+", " ", self.browser.text())

    def folded(self):
        """Returns the text that the head of the page folds away."""
        return self.browser.run("return document.querySelector('header details').textContent")

    def test_every_view_shows_whom_the_simulated_ranks_stand_for(self):
        simulated = self.simulate()
        self.assertEqual((simulated["ranks"], simulated["ranks_simulated"]), (RANKS, STAGES))
        report = json.loads(self.place.run("trace", "report", "sim.pftrace", "--json").stdout)
        self.assertEqual(report["by_symmetry"]["ranks_simulated"], STAGES)
        self.assertEqual(sum(of["ranks"] for of in report["by_symmetry"]["classes"]), RANKS)
        self.assertNotIn("last_state", report)
        why = report["why_slow"]
        for step_ns in (report["step_ns"], why["recorded_step_ns"], why["replayed_step_ns"]):
            self.assertAlmostEqual(step_ns * 1e-9 / simulated["step_seconds"], 1, delta=0.01)
        address = self.serve("sim.pftrace")
        for view, heading in VIEWS.items():
            with self.subTest(view=view):
                text = self.open(address, view)
                self.assertRegex(re.sub(r"\s+", " ", self.browser.heading()), heading)
                self.assertIn(f"By symmetry: {STAGES} simulated ranks stand for {RANKS:,}", text)
                self.assertIn(report["by_symmetry"]["text"], self.folded())
                self.assertEqual(self.browser.nameless(), [])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])
        self.assertIn("of 4 devices, which stand for 1,024", self.open(address, "verdict"))
        self.assertIn("stands for ranks", self.open(address, "memory"))
        for row in self.browser.rows("All ranks"):
            self.assertIn(int(row[0]), [of["rank"] for of in report["by_symmetry"]["classes"]])
        # A simulation takes the times that the plan expects, so both charts of the pipeline are as long.
        ran, planned = (float(found.replace(",", "")) for found in re.findall(
            r"As (?:it ran|the plan expects it): ([\d.,]+)", self.open(address, "pipeline")))
        self.assertAlmostEqual(planned / ran, 1, delta=0.1)
        self.open(address, "skew")
        counts = self.browser.run(WORKS_ON_ALL)
        self.assertTrue(counts and all(n % (RANKS // STAGES) == 0 for n in counts), counts)
        self.open(address, "devices")
        self.assertEqual([row[0].split(" x")[1] for row in self.browser.rows("What each device did")], ["256"] * STAGES)

    def test_the_page_of_a_plan_for_them_has_the_simulated_step(self):
        address = self.serve("job.textproto", "--cluster", "cluster.textproto", "--mesh", MESH)
        self.open(address, "timeline")
        self.assertIn("1024 ranks are simulated by 4: rank 0 stands for ranks ", self.folded())


if __name__ == "__main__":
    unittest.main()
