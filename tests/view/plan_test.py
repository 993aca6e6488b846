"""Tests that `weir view JOB` shows in a real browser what `weir plan` says, and the predicted step, before any run."""

import json
import re
import struct
import subprocess
import unittest
import urllib.request

from tests.view import view_case

MESH = ("--mesh", "pp=2,tp=2")
# The views of a run are those of the plan's simulation.
VIEWS = {"plan": "A step is predicted to take", "verdict": r"A step.* takes ", "path": "Critical path of step",
         "timeline": "Timeline", "pipeline": "Pipeline of step", "memory": "Memory of rank",
         "transfers": "Layouts and boxings"}


def object_of(bundle):
    """Returns the object of a bundle (tools/view/run_bundle.h)."""
    size = struct.unpack_from("<I", bundle, 8)[0]
    return json.loads(bundle[16:16 + size])


class PlanView(view_case.ViewCase):
    def plan(self, *words):
        return json.loads(self.place.run("plan", "job.textproto", *words, "--json").stdout)

    def text(self):
        return re.sub(r"\s+", " ", self.browser.text())

    def test_the_page_has_the_plan_of_weir_plan_and_its_predicted_step(self):
        self.write_job()
        address = self.serve("job.textproto", *MESH)
        plan = self.plan(*MESH)
        with urllib.request.urlopen(address + "run") as answer:
            served = object_of(answer.read())
        for run in (served["plan"], plan):
            del run["passes"]  # times of this compilation
        self.assertEqual(served["plan"], plan)
        self.assertAlmostEqual(served["report"]["step_ns"] * 1e-9 / plan["prediction"]["step_seconds"], 1, delta=0.01)
        for view, heading in VIEWS.items():
            with self.subTest(view=view):
                self.browser.open(f"{address}#view={view}")
                self.assertRegex(re.sub(r"\s+", " ", self.browser.heading()), heading)
                self.assertEqual(self.browser.nameless(), [])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])
        self.browser.open(address)
        self.assertRegex(self.browser.heading(), VIEWS["plan"])
        text = self.text()
        for sentence in (plan["fit"]["text"], *plan["lines"].values(), *plan["warnings"]):
            self.assertIn(re.sub(r"\s+", " ", sentence), text)
        self.assertEqual([(row[2], row[4], row[6]) for row in self.browser.rows("Boxings, the costliest first")],
                         [(b["method"], b["layouts"], b.get("why", "")) for b in plan["boxings"]][:30])
        self.assertEqual(len(self.browser.rows("Devices in a predicted step")), 4)

    def test_the_json_of_a_plan_is_shown_alone_and_with_its_memory(self):
        self.write_job()
        plan = self.plan(*MESH)
        with open(self.place.path("plan.json"), "w", encoding="utf-8") as file:
            json.dump(plan, file)
        address = self.serve("plan.json")
        with urllib.request.urlopen(address + "run") as answer:
            self.assertEqual(object_of(answer.read())["plan"], plan)
        self.browser.open(address)
        views = self.browser.run("return [...document.querySelectorAll('nav a')].map(a => a.innerText)")
        self.assertEqual(views, ["Plan"])
        self.assertRegex(self.browser.heading(), VIEWS["plan"])
        text = self.text()
        self.assertIn("The views of a simulated run are not here: the file has a plan and no acts", text)
        for sentence in (plan["fit"]["text"], *plan["lines"].values(), *plan["warnings"]):
            self.assertIn(re.sub(r"\s+", " ", sentence), text)
        self.assertEqual(len(self.browser.rows("What the memory of ranks is for")), len(plan["ranks"]))
        self.assertIn("bubble", self.browser.run("return document.querySelector('pre').innerText"))
        self.assertGreater(len(self.browser.rows("Tensors of ")), 0)
        self.browser.open(f"{address}#view=plan&rank={plan['ranks'][-1]['rank']}")
        self.assertEqual([(row[2], row[5]) for row in self.browser.rows("What lives on rank ")],
                         [(t["name"], t["why"]) for t in plan["ranks"][-1]["memory"]["largest"]])
        self.assertEqual(self.browser.nameless(), [])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])

    def test_json_that_is_no_plan_is_refused_with_the_place_that_is_wrong(self):
        self.write_job()
        plan = self.plan(*MESH)
        without_schedule = {name: value for name, value in plan.items() if name != "schedule"}
        other_kind = json.loads(json.dumps(plan))
        other_kind["ranks"][0]["memory"]["weight_bytes"] = "1"
        texts = {"no JSON at byte": json.dumps(plan)[:-9], "JSON without schedule": without_schedule,
                 "ranks.0.memory.weight_bytes is a text": other_kind}
        for told, content in texts.items():
            with self.subTest(told=told):
                with open(self.place.path("bad.json"), "w", encoding="utf-8") as file:
                    file.write(content if isinstance(content, str) else json.dumps(content))
                ended = subprocess.run([self.place.program, "view", "bad.json", "--export", "page.html"],
                                       cwd=self.place.folder, env=self.place.environment, capture_output=True,
                                       text=True, check=False)
                self.assertEqual(ended.returncode, 66)
                self.assertIn("W0538", ended.stderr)
                self.assertIn(told, " ".join(ended.stderr.split()))

    def test_rules_that_a_search_has_found_are_told(self):
        self.write_job()
        found = self.plan(*MESH, "--rules", "auto")["rules_found"]
        self.place.run("view", "job.textproto", *MESH, "--rules", "auto", "--export", "plan.html")
        self.browser.open(f"file://{self.place.path('plan.html')}")
        text = self.text()
        self.assertIn("Rules that the search found", text)
        self.assertIn(re.sub(r"\s+", " ", found["text"].removeprefix("rules found: ")), text)
        details = self.browser.run("return document.querySelector('section details').textContent")
        self.assertIn(found["job_text"], details)

    def test_a_function_shows_its_tensors_with_their_layouts_and_a_link_leads_back(self):
        self.write_job()
        self.place.run("view", "job.textproto", *MESH, "--export", "plan.html")
        page = f"file://{self.place.path('plan.html')}"
        functions = self.plan(*MESH)["functions"]
        which = next(i for i, function in enumerate(functions) if function["calls"] > 1)
        shown = [t for t in functions[which]["tensors"] if t["role"] != "inside"]
        self.browser.open(f"{page}#view=plan&function={which}")
        self.assertEqual([(row[0], row[2], row[3], row[4]) for row in self.browser.rows("Tensors of ")],
                         [(t["name"], t["type"], t["layout"], t["why"]) for t in shown])
        self.browser.run("document.querySelector('input[type=checkbox]').click()")
        self.assertEqual(len(self.browser.rows("Tensors of ")), len(functions[which]["tensors"]))
        self.assertIn("inside=1", self.browser.driver.current_url)
        self.assertEqual([url for url in self.browser.loaded() if not url.startswith("blob:")], [])

    def test_a_plan_that_no_simulation_shows_act_by_act_is_shown_alone(self):
        self.write_job()
        one_device = """device { name: "d" peak { dtype: "f32" flops_per_second: 1e12 } bytes_per_second: 1e11 }
                        host { device: "d" devices: 1 } within_host { latency_ns: 1000 bytes_per_second: 1e10 }"""
        with open(self.place.path("one.textproto"), "w", encoding="utf-8") as file:
            file.write(one_device)
        self.place.run("view", "job.textproto", *MESH, "--cluster", "one.textproto", "--export", "plan.html")
        self.browser.open(f"file://{self.place.path('plan.html')}")
        text = self.text()
        self.assertIn("The views of a simulated run are not here: ", text)
        self.assertIn("the cluster has 1 device", text)
        self.assertEqual(self.browser.run("return document.querySelectorAll('nav a').length"), 1)
        self.assertIn("bubble", self.browser.run("return document.querySelector('pre').innerText"))
        self.assertEqual(self.browser.nameless(), [])


if __name__ == "__main__":
    unittest.main()
