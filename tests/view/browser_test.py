"""Tests the page of `weir view` in a real browser, on the trace of a job with stages and data parallelism."""

import json
import re
import struct
import subprocess
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.common import keys

from tests.view import view_case

VIEWS = {"verdict": r"A step.* takes ", "timeline": "Timeline", "registers": "Registers",
         "path": "Critical path of step",
         "pressure": "Back-pressure", "memory": "Memory of rank",
         "devices": "Devices and ranks", "transfers": "Layouts and boxings", "pipeline": r"Pipeline of step \d",
         "skew": "The same work on different ranks"}


MEANINGS_OUTSIDE = """
  return [...document.querySelectorAll(".term")].filter((term) => {
    term.focus();
    const box = term.lastElementChild.getBoundingClientRect();
    return box.width === 0 || box.left < 0 || box.right > innerWidth || box.top < 0 || box.bottom > innerHeight;
  }).map((term) => term.innerText);
"""
CLICK_BOX = """
  [...document.querySelectorAll(".box")].find((box) => box.textContent.startsWith(arguments[0]))
    .dispatchEvent(new MouseEvent("click", {bubbles: true}));
"""
TITLES = """
  return [...document.querySelectorAll(".pipeline")[arguments[0]].querySelectorAll(".box title")].map(
    (title) => title.textContent);
"""
HAS_COLOUR = """
  const c = document.querySelector("canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  const [red, green, blue] = arguments[0];
  for (let i = 0; i < d.length; i += 4) if (d[i] === red && d[i + 1] === green && d[i + 2] === blue) return true;
  return false;
"""
TOO_WIDE = """
  return [...document.querySelectorAll(".table")].filter((t) => t.scrollWidth > t.clientWidth)
    .map((t) => t.getAttribute("aria-label"));
"""


TYPES = {"u8": "B", "i32": "i", "u32": "I", "f32": "f", "f64": "d"}


def bundle_of(data):
    """Returns the object of a bundle (tools/view/run_bundle.h) and its columns by name."""
    size = struct.unpack_from("<I", data, 8)[0]
    run = json.loads(data[16:16 + size])
    return run, {column["name"]: struct.unpack_from(f"<{column['count']}{TYPES[column['type']]}", data,
                                                    16 + size + column["offset"]) for column in run["columns"]}


class View(view_case.ViewCase):
    def setUp(self):
        super().setUp()
        self.write_job()
        self.place.train("--mesh", "pp=2,dp=2", "--steps", "6", "--trace", "run.pftrace")
        self.address = self.serve("run.pftrace")

    def report(self):
        return json.loads(self.place.run("trace", "report", "run.pftrace", "--json").stdout)

    def test_every_view_shows_and_loads_nothing_from_elsewhere(self):
        for view, heading in VIEWS.items():
            with self.subTest(view=view):
                self.browser.open(f"{self.address}#view={view}")
                self.assertRegex(re.sub(r"\s+", " ", self.browser.heading()), heading)
                self.assertEqual(self.browser.nameless(), [])
                self.assertEqual([url for url in self.browser.loaded()
                                  if not url.startswith((self.address, "blob:"))], [])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])

    def test_every_view_shows_runs_of_two_processes_on_other_layouts(self):
        for mesh in ("dp=2,tp=2", "pp=2,tp=2"):
            self.place.train("--mesh", mesh, "--processes", "2", "--steps", "4", "--trace", "two.pftrace")
            self.place.run("view", "two.pftrace", "--export", "two.html")
            for view, heading in VIEWS.items():
                if view == "pipeline" and "pp" not in mesh:
                    continue
                with self.subTest(mesh=mesh, view=view):
                    self.browser.open(f"file://{self.place.path('two.html')}#view={view}")
                    self.assertRegex(re.sub(r"\s+", " ", self.browser.heading()), heading)
                    self.assertEqual(self.browser.nameless(), [])
        self.assertEqual(self.browser.messages(), [])

    def test_registers_that_are_nearly_always_full_are_listed_with_their_bytes(self):
        self.place.run("sim", "job.textproto", "--mesh", "pp=2", "--set", "runtime.registers=ONE",
                       "--steps", "4", "--trace", "one.pftrace")
        address = self.serve("one.pftrace")
        self.browser.open(f"{address}#view=registers")
        with urllib.request.urlopen(address + "run") as answer:
            run = bundle_of(answer.read())
        with urllib.request.urlopen(address + "analysis") as answer:
            full = bundle_of(answer.read())[1]["register_full_ns"]
        steps = run[0]["steps"]
        all_ns = sum(step["end_ns"] - step["begin_ns"] for step in steps)
        rows = self.browser.rows("Nearly always full")
        self.assertEqual(len(rows), min(40, sum(1 for ns in full if ns / all_ns >= 0.8)))
        for row in rows:
            self.assertGreaterEqual(float(row[3].split()[0]), 80)
            self.assertRegex(row[4], r"^[\d.]+\s([KMG]i)?B$")
            self.assertRegex(row[7], r"^(never|[\d.]+\s(ns|µs|ms|s))$")

    def test_the_page_tells_what_the_report_tells(self):
        why = self.report()["why_slow"]
        self.browser.open(f"{self.address}#view=verdict")
        self.assertEqual([row[3] for row in self.browser.rows("What the critical path")],
                         [line["text"] for line in why["path_lines"][:5]])
        self.assertEqual([row[3] for row in self.browser.rows("What a change would gain")],
                         [row["about"] for row in why["what_if"] if row["finished"]][:10])
        parts = self.browser.run("return document.querySelector('.stack').getAttribute('aria-label')")
        for part in why["parts"]:
            self.assertIn(part["name"], parts)
        self.assertAlmostEqual(sum(part["share"] for part in why["parts"]), 1, places=9)
        self.browser.run("[...document.querySelectorAll('button')].find(b => b.innerText === 'Show them').click()")
        self.assertEqual([row[3] for row in self.browser.rows("What the critical path")],
                         [line["text"] for line in why["path_lines"]])
        told = [cause["text"] for cause in why["causes"]] or [why["advice"]]
        for text in told:
            self.assertIn(text, self.browser.text())

    def test_the_timeline_is_used_with_keys_and_a_link_leads_back(self):
        for phase, colour in (("forward", [0, 114, 178]), ("backward", [213, 94, 0])):
            # In the whole run an act may be narrower than a pixel. The pipeline leads to one that is wide.
            self.browser.open(f"{self.address}#view=pipeline")
            self.browser.run(CLICK_BOX, phase)
            self.browser.until(f"{phase} acts have their colour", HAS_COLOUR, colour)
        self.browser.open(f"{self.address}#view=timeline")
        for _ in range(40):  # one of these acts waited for another rank
            self.browser.key(".")
            if self.browser.run("return [...document.querySelectorAll('button')]"
                                ".some(b => b.innerText.startsWith('Go to what'))"):
                break
        else:
            self.fail("no act of rank 0 waited")
        waiting = self.browser.run("return document.querySelector('.card').innerText")
        self.assertRegex(waiting, r"the device waited .* for a (token|free slot) of .*, (from|held by) .* on rank \d")
        link = self.browser.driver.current_url
        self.browser.key("c")
        held = self.browser.run("return document.querySelector('.card').innerText")
        self.assertNotEqual(held, waiting)
        self.browser.open(link)
        self.assertEqual(self.browser.run("return document.querySelector('.card').innerText"), waiting)
        self.browser.run("[...document.querySelectorAll('button')]"
                         ".find(b => b.innerText.startsWith('Show the register')).click()")
        self.assertEqual(self.browser.heading(), "Registers")

    def test_the_path_of_a_step_is_that_of_the_report_and_leads_to_the_timeline(self):
        why = self.report()["why_slow"]
        path = next(path for path in why["step_paths"] if path["step"] == 3)
        self.browser.open(f"{self.address}#view=path&step=3")
        self.assertEqual([row[3:5] for row in self.browser.rows("What the path of step 3")],
                         [[group["cause"], group["name"] or "the longest piece"] for group in path["groups"]][:40])
        self.assertEqual([row[4:6] for row in self.browser.rows("What a change would gain")],
                         [[row["about"], row["change"]] for row in why["what_if"]])
        one = json.loads(self.place.run("trace", "report", "run.pftrace", "--json", "--step", "3").stdout)
        pieces = one["why_slow"]["critical_path"]["segments"]
        titles = self.browser.run("return [...document.querySelectorAll('.walk title')].map(t => t.textContent)")
        self.assertEqual(len(titles), len(pieces))
        self.assertEqual(sum(piece["end_ns"] - piece["begin_ns"] for piece in pieces),
                         sum(group["ns"] for group in path["groups"]))
        self.browser.run("document.querySelector('td button.link').click()")
        self.assertEqual(self.browser.heading(), "Timeline")
        # Steps overlap, so the path of a step may run over acts of the steps beside it.
        self.assertRegex(self.browser.run("return document.querySelector('.card h3').innerText"), ", step [234], ")

    def test_the_graph_of_actors_tells_what_the_report_tells_and_is_used_with_keys(self):
        pressure = self.report()["why_slow"]["back_pressure"]
        self.browser.open(f"{self.address}#view=pressure")
        self.assertIn(pressure["text"], self.browser.text())
        labels = self.browser.run("return [...document.querySelectorAll('.node')]"
                                  ".map(n => n.getAttribute('aria-label'))")
        self.assertEqual(len(labels), len(pressure["nodes"]))
        for label, node in zip(labels, pressure["nodes"]):
            self.assertTrue(label.startswith(f"{node['name']}, {node['phase']}: busy "), label)
            self.assertAlmostEqual(node["busy"] + node["starved"] + node["blocked"] + node["ready"], 1, places=6)
        self.assertEqual(len(self.browser.rows("Registers between actors")), len(pressure["edges"][:30]))
        self.browser.run("""
          const node = document.querySelectorAll(".node")[1];
          node.focus();
          node.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));""")
        self.assertIn("node=1", self.browser.driver.current_url)
        near = [edge for edge in pressure["edges"] if 1 in (edge["from"], edge["to"])][:30]
        name = pressure["nodes"][1]["name"]
        self.assertEqual(len(self.browser.rows(f"Registers of {name}")), len(near))

    def test_the_pipeline_shows_each_act_of_a_step_and_leads_to_it(self):
        self.browser.open(f"{self.address}#view=pipeline&step=3")
        titles = self.browser.run(TITLES, 0)
        self.assertTrue(titles and all(", step 3, micro-batch " in title for title in titles), titles)
        acts = [row[1] for row in self.browser.rows("What each device did")]
        self.assertEqual(len(titles), sum(int(count) for count in acts))
        planned = self.browser.run(TITLES, 1)
        self.assertEqual(sorted(title.split(", step")[0].split(", micro")[0] for title in titles),
                         sorted(title.split(", micro")[0] for title in planned))
        self.assertTrue(all(", as planned, " in title for title in planned), planned)
        self.browser.run("document.querySelector('.box').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        self.assertEqual(self.browser.heading(), "Timeline")
        self.assertIn(", step 3, ", self.browser.run("return document.querySelector('.card h3').innerText"))

    def test_the_boxes_of_the_pipeline_are_reached_with_the_keyboard(self):
        self.browser.open(f"{self.address}#view=pipeline&step=3")
        focused = "return document.activeElement.getAttribute('aria-label')"
        rows = []
        for chart in (0, 1):
            stops = self.browser.run("return document.querySelectorAll('.pipeline')[arguments[0]]"
                                     ".querySelectorAll('[tabindex=\"0\"]').length", chart)
            self.assertEqual(stops, 1, "one stop of the Tab key for a chart")
            self.browser.run("document.querySelectorAll('.pipeline')[arguments[0]]"
                             ".querySelector('[tabindex=\"0\"]').focus()", chart)
            keyboard = webdriver.ActionChains(self.browser.driver)
            first = self.browser.run(focused)
            keyboard.send_keys(keys.Keys.ARROW_RIGHT).perform()
            self.assertNotEqual(self.browser.run(focused), first)
            keyboard.send_keys(keys.Keys.ARROW_LEFT).perform()
            self.assertEqual(self.browser.run(focused), first)
            keyboard.send_keys(keys.Keys.ARROW_DOWN).perform()
            told = "return document.querySelector('.pipeline .note').innerText"
            rows.append(self.browser.run(told))
            self.assertIn(self.browser.run(focused), rows[-1])
        self.assertTrue(all(row.startswith("rank 1 ") for row in rows), rows)
        self.browser.run("document.querySelector('.pipeline [tabindex=\"0\"]').focus()")
        box = self.browser.run(focused)
        webdriver.ActionChains(self.browser.driver).send_keys(keys.Keys.ENTER).perform()
        self.assertEqual(self.browser.heading(), "Timeline")
        self.assertTrue(box.startswith(self.browser.run("return document.querySelector('.card h3').innerText")), box)

    def test_each_cause_has_its_time_and_leads_to_the_view_that_shows_it(self):
        why = self.report()["why_slow"]
        if not why["causes"]:
            self.skipTest("this run has no cause to name")
        for i, cause in enumerate(why["causes"]):
            self.assertAlmostEqual(cause["ns_per_step"], cause["share"] * why["recorded_step_ns"], delta=1)
            self.browser.open(f"{self.address}#view=verdict")
            self.browser.run("document.querySelectorAll('.causes button')[arguments[0]].click()", i)
            self.assertRegex(re.sub(r"\s+", " ", self.browser.heading()), VIEWS[cause["view"]])
            self.assertIn(f"view={cause['view']}", self.browser.driver.current_url)

    def test_the_memory_of_a_rank_is_that_of_the_report_and_fits_the_plan(self):
        memory = self.report()["why_slow"]["memory"]
        self.assertEqual([rank["rank"] for rank in memory["ranks"]], [0, 1, 2, 3])
        plan = json.loads(self.place.run("plan", "job.textproto", "--mesh", "pp=2,dp=2", "--json").stdout)
        for rank, planned in zip(memory["ranks"], plan["ranks"]):
            self.assertEqual(rank["arena_bytes"], planned["arena_bytes"])
            self.assertLessEqual(rank["peak_bytes"], rank["arena_bytes"])
            self.assertEqual(max(rank["most_bytes_of_parts"]), rank["peak_bytes"])
            self.assertEqual(rank["always_bytes"] + sum(tensor["bytes"] for tensor in rank["held"]), rank["peak_bytes"])
            self.assertGreater(rank["state_bytes"]["weights"], 0)
        self.browser.open(f"{self.address}#view=memory&rank=2")
        self.assertRegex(self.browser.heading(), "Memory of rank 2 in step")
        self.assertEqual([row[3] for row in self.browser.rows("What rank 2 holds")],
                         [tensor["name"] for tensor in memory["ranks"][2]["held"]][:40])
        self.assertTrue(any("reads it last" in row[6] for row in self.browser.rows("What rank 2 holds")))

    def test_each_boxing_has_its_bytes_and_its_speed_beside_that_of_the_plan(self):
        transfers = self.report()["why_slow"]["transfers"]
        self.browser.open(f"{self.address}#view=transfers")
        self.assertEqual(self.browser.run(TOO_WIDE), [])
        self.assertEqual(self.browser.run(MEANINGS_OUTSIDE), [])
        self.browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        self.addCleanup(self.browser.driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"media": ""})
        self.assertEqual([row[0] for row in self.browser.rows("Boxings of all layers")],
                         [transfer["name"] for transfer in transfers][:60])
        rows = self.browser.rows("Boxings of all layers")
        for row, transfer in zip(rows, transfers):
            self.assertTrue(row[0].startswith(transfer["method"]), row)
            self.assertTrue(transfer["changes"], transfer)
            for change in transfer["changes"]:
                self.assertNotEqual((change["from"], transfer.get("from_stage")),
                                    (change["to"], transfer.get("to_stage")))
                self.assertIn(f"{change['from']} → {change['to']}", row[1])
            self.assertEqual(row[2], ", ".join(reason["text"].replace("->", "→") for reason in transfer["why"]))
        self.assertIn("rule batch → dp", " ".join(row[2] for row in rows))
        self.assertIn("the next part of the pipeline", " ".join(row[2] for row in rows))
        timed = [transfer for transfer in transfers if transfer["timed"] > 0]
        self.assertTrue(timed)
        for transfer in timed:
            self.assertGreater(transfer["planned_bytes_per_second"], 0, transfer)
            self.assertGreater(transfer["bytes_per_step"], 0, transfer)

    def test_two_runs_are_compared_as_the_text_compares_them(self):
        self.place.train("--mesh", "pp=2,dp=2", "--steps", "4", "--trace", "other.pftrace")
        self.place.run("view", "run.pftrace", "other.pftrace", "--export", "two.html")
        diff = json.loads(self.place.run("trace", "diff", "run.pftrace", "other.pftrace", "--json").stdout)
        self.assertEqual((diff["actors_only_a"], diff["actors_only_b"]), (0, 0))
        self.assertGreater(diff["actors_matched"], 0)
        self.browser.open(f"file://{self.place.path('two.html')}")
        self.assertEqual(self.browser.heading(), "Two runs")
        self.assertIn(diff["verdict"], self.browser.text())
        self.assertEqual([row[3:5] for row in self.browser.rows("The critical path")],
                         [[row["cause"], row["name"]] for row in diff["path"]][:30])
        self.assertEqual(len(self.browser.rows("Steps")), len(diff["steps"]))
        self.assertEqual([row[4] for row in self.browser.rows("The acts of actors")],
                         [row["name"] for row in diff["work"]][:30])
        self.assertEqual(self.browser.nameless(), [])
        self.assertAlmostEqual(sum(row["more_ns"] for row in diff["path"]),
                               diff["b"]["step_ns"] - diff["a"]["step_ns"], delta=1)
        text = self.place.run("trace", "diff", "run.pftrace", "other.pftrace").stdout
        self.assertIn("these rows add up to the difference", text)
        self.browser.open(f"{self.address}#view=compare")  # one run has no such view
        self.assertRegex(self.browser.heading(), "takes")

    def test_an_exported_page_needs_no_server(self):
        self.place.run("view", "run.pftrace", "--export", "run.html")
        self.browser.open(f"file://{self.place.path('run.html')}#view=verdict")
        alone = self.browser.text()
        self.assertEqual([url for url in self.browser.loaded() if not url.startswith("blob:")], [])
        self.browser.open(f"{self.address}#view=verdict")
        self.assertEqual(alone, self.browser.text())


if __name__ == "__main__":
    unittest.main()
