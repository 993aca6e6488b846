"""A real browser without a window: Debian's Chromium, driven by Selenium."""

import json
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

LIMIT_S = 120  # for anything that should happen by itself
LOOK_S = 0.02
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--window-size=1400,1000")


# A reader without a mouse or without sight needs a name for everything that can be used or is a picture.
NAMELESS = """
  const nameless = [];
  for (const e of document.querySelectorAll("button, a, [role=img], canvas, input, select, [role=region]")) {
    const label = e.getAttribute("aria-label") || e.innerText || (e.closest("label") || {}).innerText;
    if (!label || !label.trim()) nameless.push(e.outerHTML);
  }
  return nameless;
"""


class Browser:
    """A Browser shows one page at a time. It ends with close()."""

    def __init__(self, *flags):
        options = Options()
        for flag in FLAGS + flags:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    def close(self):
        self.driver.quit()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, what, script, *arguments):
        """Waits until the script returns something true, and returns it."""
        end = time.monotonic() + LIMIT_S
        while True:
            result = self.run(script, *arguments)
            if result:
                return result
            if time.monotonic() > end:
                raise AssertionError(f"not within {LIMIT_S} s: {what}\n{self.text()}\n{self.messages()}")
            time.sleep(LOOK_S)

    def open(self, address):
        """Opens a page of `weir view` and waits until it shows its run."""
        self.driver.get("about:blank")  # else an address that differs behind its # loads nothing
        self.driver.get(address)
        self.until("the page shows the run", "return document.documentElement.dataset.ready === 'yes'")

    def text(self):
        return self.run("return document.body.innerText")

    def heading(self):
        return self.run("return document.querySelector('h2').innerText")

    def nameless(self):
        """Returns the elements of the page that lack a name."""
        return self.run(NAMELESS)

    def rows(self, table):
        """Returns the cells of the tables whose caption starts with `table`, as lists of texts."""
        return self.run(
            "return [...document.querySelectorAll('table')].filter(t => t.caption.innerText.startsWith(arguments[0]))"
            ".flatMap(t => [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.innerText)))", table)

    def key(self, key):
        """Presses a key on the timeline."""
        self.run("document.querySelector('canvas').dispatchEvent("
                 "new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key)

    def messages(self):
        """Returns what the page has written to the browser's console, refusals of its policy included."""
        return [json.dumps(entry) for entry in self.driver.get_log("browser")]

    def loaded(self):
        """Returns the addresses that the page has loaded beside its own."""
        return self.run("return performance.getEntriesByType('resource').map(e => e.name)")
