"""The base of tests that look at pages of `weir view` in a real browser."""

import subprocess

from tests.processes import weir_jobs
from tests.view import browser


class ViewCase(weir_jobs.JobCase):
    """A ViewCase has one browser for all its tests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = browser.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        super().tearDownClass()

    def serve(self, *words):
        """Serves a page with `weir view` until the test ends, and returns its address."""
        server = subprocess.Popen([self.place.program, "view", *words, "--no-open"], cwd=self.place.folder,
                                  env=self.place.environment, stdout=subprocess.PIPE, text=True)

        def end():
            server.terminate()
            self.assertEqual(server.wait(60), 0)
            server.stdout.close()

        self.addCleanup(end)
        address = server.stdout.readline().strip()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+/[0-9a-f]{32}/$")
        return address
