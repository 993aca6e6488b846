"""Looks with axe-core for obstacles on the page of `weir view` to people who do not see, or use no mouse.

The test opens every view of a recorded run and of a plan, and the page of a run that goes on, in light and in dark
colours. axe-core is Deque's; `tools/deps/install --with-browser` fetches it from PyPI.
"""

import os
import pwd
import re
import signal
import unittest

from tests.processes import weir_jobs
from tests.view import browser

AXE = os.environ.get(
    "WEIR_AXE",
    os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".cache")),
                 "weir/axe/axe.min.js"))
OBSTACLES = """
  const done = arguments[arguments.length - 1];
  axe.run(document, {resultTypes: ["violations"]}).then(
    (found) => done(found.violations.map(
      (v) => `${v.id}: ${v.help}: ` + v.nodes.slice(0, 3).map((n) => n.html).join(" "))),
    (error) => done([String(error)]));
"""
COLOURS = ("light", "dark")


@unittest.skipUnless(os.path.exists(AXE), f"NOT TESTED: no {AXE}: tools/deps/install --with-browser")
class Accessibility(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)
        with open(AXE, encoding="utf-8") as file:
            self.axe = file.read()

    def expect_no_obstacles(self, address):
        for colour in COLOURS:
            self.browser.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": colour}]})
            self.browser.open(address)
            self.browser.run(self.axe)
            with self.subTest(address=address, colour=colour):
                self.assertEqual(self.browser.driver.execute_async_script(OBSTACLES), [])

    def export(self, *words):
        """Opens the page that `weir view` writes, and returns its address."""
        self.place.run("view", *words, "--export", "page.html")
        page = f"file://{self.place.path('page.html')}"
        self.browser.open(page)
        return page

    def test_no_view_of_a_recorded_run_has_an_obstacle(self):
        self.write_job()
        self.place.train("--mesh", "pp=2,dp=2", "--steps", "6", "--trace", "run.pftrace")
        page = self.export("run.pftrace")
        views = self.browser.run("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
        self.assertGreater(len(views), 5)
        for view in views:
            self.expect_no_obstacles(page + view)
        page = self.export("run.pftrace", "run.pftrace")
        self.expect_no_obstacles(page + "#view=compare")

    def test_the_page_of_a_run_that_failed_has_no_obstacle(self):
        self.write_job("--steps", "100000000")
        job = self.place.start("--mesh", "dp=2", "--processes", "2", "--trace", "run.pftrace")
        workers = job.wait_for_workers(2)
        job.wait_for_step()
        os.kill(workers["1"], signal.SIGKILL)
        self.assertNotEqual(job.wait().code, 0)
        self.expect_no_obstacles(self.export("run.pftrace") + "#view=verdict")

    def test_the_plan_of_a_job_has_no_obstacle(self):
        self.write_job()
        page = self.export("job.textproto", "--mesh", "pp=2,dp=2")
        self.expect_no_obstacles(page + "#view=plan&inside=1")

    def test_the_page_of_a_run_that_goes_on_has_no_obstacle(self):
        self.write_job("--steps", "100000000")
        job = self.place.start("--mesh", "dp=2", "--processes", "2", "--view")
        job.wait_for_step()
        address = re.search(r"^view: (\S+)$", job.errors(), re.MULTILINE).group(1)
        self.expect_no_obstacles(address)
        job.end()

    def test_axe_finds_an_obstacle_where_there_is_one(self):
        with open(self.place.path("bad.html"), "w", encoding="utf-8") as file:
            file.write("<html lang=en data-ready=yes><title>t</title><body><main><h1>t</h1><button></button></main>")
        self.browser.open(f"file://{self.place.path('bad.html')}")
        self.browser.run(self.axe)
        found = self.browser.driver.execute_async_script(OBSTACLES)
        self.assertTrue(any(line.startswith("button-name:") for line in found), found)


if __name__ == "__main__":
    unittest.main()
