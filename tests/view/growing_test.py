"""Tests that the page of `weir view` shows the acts of a run before the analysis of the run is there, and then this.

A server of the test stands between the browser and `weir view`. It holds the analysis back until the test lets it go.
"""

import json
import threading
import unittest
import urllib.request

from tests.view import page_server
from tests.view import view_case

DOING = "replays the run with a change, number 3"


class Held(page_server.PageServer):
    """Held serves what `weir view` serves, and says that the analysis goes on until released."""

    def __init__(self, address):
        self.released = threading.Event()

        def answer(name):
            if name == "progress" and not self.released.is_set():
                return "application/json", json.dumps({"ready": False, "doing": DOING}).encode()
            with urllib.request.urlopen(address + name) as served:
                return served.headers["Content-Type"], served.read()

        super().__init__(answer)


class Growing(view_case.ViewCase):
    def setUp(self):
        super().setUp()
        self.write_job()
        self.place.train("--mesh", "pp=2", "--steps", "6", "--trace", "run.pftrace")

    def view(self):
        held = Held(self.serve("run.pftrace"))
        self.addCleanup(held.close)
        return held

    def show(self, address):
        self.browser.driver.get("about:blank")
        self.browser.driver.get(address)
        self.browser.until("the page shows the acts", "return document.documentElement.dataset.ready === 'run'")

    def test_the_timeline_is_there_before_the_analysis_and_stays_when_it_comes(self):
        held = self.view()
        self.show(held.address)
        self.assertEqual(self.browser.heading(), "Timeline")
        self.assertIn(f"The analysis goes on: weir view {DOING}.", self.browser.text())
        for _ in range(3):
            self.browser.key(".")
        self.browser.key("w")  # a move that is not in the address at once
        selected = self.browser.run("return document.querySelector('.card h3').innerText")
        self.browser.run("document.querySelector('canvas').dataset.seen = 'before'")
        held.released.set()
        self.browser.until("the analysis is there", "return document.documentElement.dataset.ready === 'yes'")
        self.assertEqual(self.browser.heading(), "Timeline")
        self.assertEqual(self.browser.run("return document.querySelector('canvas').dataset.seen"), "before")
        self.assertEqual(self.browser.run("return document.querySelector('.card h3').innerText"), selected)
        self.assertNotIn("The analysis goes on", self.browser.text())
        self.browser.run("location.hash = '#view=verdict'")
        report = json.loads(self.place.run("trace", "report", "run.pftrace", "--json").stdout)
        self.browser.until("the verdict", "return document.querySelectorAll('.stack').length === 1")
        self.assertEqual([row[3] for row in self.browser.rows("What the critical path")],
                         [line["text"] for line in report["why_slow"]["path_lines"][:5]])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])

    def test_a_view_of_the_analysis_says_what_goes_on_and_then_shows_itself(self):
        held = self.view()
        self.show(held.address + "#view=verdict")
        self.assertEqual(self.browser.heading(), "Verdict")
        self.assertIn(DOING, self.browser.text())
        self.assertEqual(self.browser.nameless(), [])
        held.released.set()
        self.browser.until("the verdict", "return document.querySelectorAll('.stack').length === 1")
        self.assertRegex(self.browser.heading(), "takes")


if __name__ == "__main__":
    unittest.main()
