"""Tests the timeline of `weir view` in a real browser with a made run: colours at every zoom, rows of actors, search.

Each queue of the made run waits for one cause only, so the pixels of its row tell whether a picture of many acts
keeps it.
"""

import os
import unittest

from tests.view import browser, made_run

FRAME = "tools/view/page/page.html"
FOLDER = "tools/view/page"
ACTS = 40_000
QUEUES = 8
SHOWN = "return document.documentElement.dataset.ready !== undefined"
# The colours of the pixels of a row, and how many pixels have each.
ROW = """
  const c = document.querySelector("canvas"), ratio = c.width / c.clientWidth;
  const names = Math.ceil(Math.min(260, Math.round(0.4 * c.clientWidth)) * ratio);
  const top = Math.round((22 + 26 * arguments[0] + 3) * ratio), height = Math.round(20 * ratio);
  const data = new Uint32Array(c.getContext("2d").getImageData(names, top, c.width - names, height).data.buffer);
  const seen = {};
  for (const pixel of data) seen[pixel & 0xffffff] = (seen[pixel & 0xffffff] || 0) + 1;
  return seen;
"""
PICTURE = """
  const done = arguments[arguments.length - 1];
  requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
"""


def rgb(red, green, blue):
    return str(red | green << 8 | blue << 16)


# The strong colour of each pattern (tools/view/page/colours.ts). That of tokens under way is also that of boxings, so
# its faint colour, between the lines of the pattern, tells it.
STRONG = {"late": rgb(0xb9, 0xb9, 0xb9), "own": rgb(0x56, 0xb4, 0xe9), "credit": rgb(0xcc, 0x79, 0xa7)}
FAINT_UNDER_WAY = (range(0xf4, 0xf8), range(0xdc, 0xe0), range(0xa4, 0xaa))


def is_of(kind, seen):
    """Returns how many pixels of a row have the pattern of a cause."""
    if kind != "way":
        return seen.get(STRONG[kind], 0)
    return sum(count for pixel, count in seen.items()
               if all(int(pixel) >> shift & 255 in part for shift, part in zip((0, 8, 16), FAINT_UNDER_WAY)))


class Timeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = os.environ.get("WEIR_PAGE", FOLDER)
        texts = []
        for path in (FRAME, os.path.join(folder, "page.css"), os.path.join(folder, "page.js")):
            with open(path, encoding="utf-8") as file:
                texts.append(file.read())
        cls.served = made_run.Served(*texts, made_run.bundle(ACTS, QUEUES))
        cls.addClassCleanup(cls.served.close)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, part):
        self.browser.driver.get("about:blank")
        self.browser.driver.get(f"{self.served.address}#view=timeline{part}")
        self.browser.until("the page shows the acts", SHOWN)
        self.browser.driver.execute_async_script(PICTURE)

    def key(self, key):
        self.browser.key(key)
        self.browser.driver.execute_async_script(PICTURE)

    def hits(self):
        return self.browser.run("return document.querySelector('.hits output').innerText")

    def test_waits_have_the_pattern_of_their_cause_at_every_zoom(self):
        whole = int(self.browser_end())
        for span in (whole, whole // 20, whole // 200, 60_000):
            self.open(f"&from=0&to={span}")
            for queue in range(4):
                kind = made_run.WAITS[queue]
                seen = self.browser.run(ROW, queue)
                with self.subTest(span=span, kind=kind):
                    self.assertGreater(is_of(kind, seen), 50)
                    for other in made_run.WAITS:
                        if other != kind:
                            self.assertEqual(is_of(other, seen), 0, other)

    def browser_end(self):
        """Returns the end of the run in ns: what a picture of everything shows."""
        self.open("")
        self.key("d")
        # A move of the timeline stands in the address a moment later.
        self.browser.until("the move is in the address", "return location.hash.includes('to=')")
        shown = self.browser.run("return [...new URLSearchParams(location.hash.slice(1))]")
        of = dict(shown)
        return float(of["to"]) - float(of["from"])

    def test_the_picture_follows_the_colours_of_the_system(self):
        self.open("")
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(ground)
        self.browser.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.addCleanup(self.browser.driver.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": []})
        self.browser.until("the page is dark", f"return (() => {{ {ground} }})() !== arguments[0]", light)
        dark = self.browser.run(ground)
        red, green, blue = (int(part) for part in dark.removeprefix("rgb(").removesuffix(")").split(", "))
        self.browser.until("the picture is dark", """
          const c = document.querySelector("canvas"), [r, g, b] = c.getContext("2d").getImageData(2, 2, 1, 1).data;
          return r === arguments[0] && g === arguments[1] && b === arguments[2];""", red, green, blue)

    def test_a_queue_opens_into_rows_of_its_actors_and_a_link_leads_back(self):
        high = "return document.querySelector('.timeline').clientHeight"
        self.open("")
        closed = self.browser.run(high)
        self.key("o")  # nothing is selected: the queue at the top
        self.assertIn("open=0", self.browser.driver.current_url)
        self.assertGreater(self.browser.run(high), closed)
        link = self.browser.driver.current_url
        self.open("&from=0&to=60000&open=0")
        # The second actor of queue 0 has the second act alone, which is of the phase backward.
        seen = self.browser.run(ROW, 2)
        self.assertGreater(seen.get(rgb(0xd5, 0x5e, 0x00), 0), 50)
        self.assertEqual(seen.get(rgb(0x00, 0x72, 0xb2), 0), 0)
        self.key("o")
        self.assertNotIn("open=", self.browser.driver.current_url)
        self.assertEqual(self.browser.run(high), closed)
        self.open(link.split("#view=timeline")[1])
        self.assertGreater(self.browser.run(high), closed)
        # The name of a queue is a button of the mouse.
        self.browser.run("""
          const c = document.querySelector("canvas"), box = c.getBoundingClientRect();
          for (const what of ["mousedown", "mouseup"]) {
            c.dispatchEvent(new MouseEvent(what, {clientX: box.left + 30, clientY: box.top + 30, bubbles: true}));
          }""")
        self.assertNotIn("open=", self.browser.driver.current_url)

    def test_the_search_counts_acts_marks_them_and_leads_from_one_to_the_next(self):
        each = ACTS // QUEUES
        hits = sum(1 for n in range(each) if n % 32 == 12) * QUEUES  # "forward layers.3" is actor 12 of a queue
        self.open("&find=forward%20layers.3")
        self.assertEqual(self.hits(), f"{hits:,} acts of {QUEUES} actors")
        seen = self.browser.run(ROW, 0)
        self.assertGreater(seen.get(rgb(0x00, 0x72, 0xb2), 0), 50, "what was found has its colour")
        self.assertEqual(seen.get(rgb(0xd5, 0x5e, 0x00), 0), 0, "and nothing else has")
        # All queues have the acts at the same times, so the first eight are the twelfth act of each queue.
        selected = []
        for n in range(QUEUES + 1):
            self.key("n")
            self.assertEqual(self.hits(), f"{n + 1:,} of {hits:,} acts of {QUEUES} actors")
            selected.append(self.browser.run("return document.querySelector('.card').innerText"))
            self.assertIn("forward layers.3, step 1", selected[-1])
        self.assertEqual(len(set(selected[:QUEUES])), QUEUES)
        self.key("p")
        self.assertEqual(self.hits(), f"{QUEUES:,} of {hits:,} acts of {QUEUES} actors")
        for _ in range(QUEUES):
            self.key("p")
        self.assertEqual(self.hits(), f"{hits:,} of {hits:,} acts of {QUEUES} actors", "before the first is the last")
        self.browser.run("[...document.querySelectorAll('.hits button')].find(b => b.innerText === 'Next').click()")
        self.assertEqual(self.hits(), f"1 of {hits:,} acts of {QUEUES} actors")
        self.key("Escape")
        self.assertEqual(self.browser.run("return document.querySelectorAll('.hits').length"), 0)
        self.open(f"&from={5 * 60_000}&to={6 * 60_000}")
        self.key(".")
        self.assertIn(f"from={5 * 60_000}&", self.browser.driver.current_url, "the first act of the part that is shown")
        self.key("m")
        self.browser.until("the act is measured", "return document.body.innerText.includes('measured')")
        self.key("Escape")
        self.browser.until("no act is measured", "return !document.body.innerText.includes('measured')")
        of_layer = sum(1 for n in range(each) if 4 <= n % 32 < 8) * QUEUES
        self.open("&find=layers.1")  # also a part of the name of a register, whose writer is of layers.0
        self.assertEqual(self.hits(), f"{of_layer:,} acts of {4 * QUEUES} actors")
        self.open("&find=layers.1.y")  # a register only: its writer and its reader
        self.assertRegex(self.hits(), r"^[\d,]+ acts of \d+ actors$")
        self.open("&find=no%20such%20name")
        self.assertEqual(self.hits(), "no act has such a name")


if __name__ == "__main__":
    unittest.main()
