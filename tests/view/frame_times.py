"""Measures how long the timeline of `weir view` takes for a picture, at every zoom, with made runs of any size.

Usage, in the folder of the checkout: PYTHONPATH=. python3 tests/view/frame_times.py [--page FOLDER] [ACTS ...].
FOLDER has page.js and page.css, as Bazel bundles them. A line of the output has the number of acts, the time from the
address to the first picture, the script's time for a picture, and the frames per second while the timeline zooms in by
keys from all acts to few ones, moves, zooms out and moves again.
"""

import argparse
import os
import time

from tests.view import browser, made_run

FRAME = "tools/view/page/page.html"
FOLDER = "bazel-bin/tools/view/page"
# Every frame has one key: zoom in, move, zoom out, move.
MEASURE = """
  const done = arguments[arguments.length - 1], steps = arguments[0];
  const canvas = document.querySelector("canvas"), own = window.requestAnimationFrame.bind(window);
  const draws = [];
  window.requestAnimationFrame = (call) => own((at) => {
    const begin = performance.now();
    call(at);
    draws.push(performance.now() - begin);
  });
  const keys = ["w", "d", "s", "a"].flatMap((key) => Array(key === "w" || key === "s" ? steps : 60).fill(key));
  const times = [];
  let n = 0;
  const frame = (at) => {
    times.push(at);
    if (n === keys.length) {
      window.requestAnimationFrame = own;
      return done({draws, times});
    }
    canvas.dispatchEvent(new KeyboardEvent("keydown", {key: keys[n++], bubbles: true}));
    own(frame);
  };
  own(frame);
"""
ZOOM = 1.25  # of a key
ACTS_AT_LAST = 20  # that a row shows when zoomed in


def measure(page, acts, folder):
    texts = []
    for path in (FRAME, os.path.join(folder, "page.css"), os.path.join(folder, "page.js")):
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    served = made_run.Served(*texts, made_run.bundle(acts))
    try:
        page.driver.get("about:blank")
        begin = time.monotonic()
        page.driver.get(served.address + "#view=timeline")
        page.until("the page shows the acts", "return document.documentElement.dataset.ready !== undefined")
        shown = time.monotonic() - begin
        steps, share = 0, acts / 24 / ACTS_AT_LAST
        while share > 1:
            steps, share = steps + 1, share / ZOOM
        page.driver.set_script_timeout(browser.LIMIT_S)
        result = page.driver.execute_async_script(MEASURE, steps)
    finally:
        served.close()
    draws = sorted(result["draws"])
    gaps = sorted(after - before for before, after in zip(result["times"], result["times"][1:]))
    return shown, draws, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", default=FOLDER)
    parser.add_argument("acts", nargs="*", type=int, default=[10**4, 10**5, 10**6, 10**7])
    arguments = parser.parse_args()
    page = browser.Browser()
    try:
        for acts in arguments.acts:
            shown, draws, gaps = measure(page, acts, arguments.page)
            print(f"{acts:>9} acts: first picture {shown:.2f} s; a picture {draws[len(draws) // 2]:.1f} ms, "
                  f"one of 20 longer than {draws[len(draws) * 19 // 20]:.1f} ms; "
                  f"{1000 * len(gaps) / sum(gaps):.0f} frames/s, one of 20 gaps longer than "
                  f"{gaps[len(gaps) * 19 // 20]:.0f} ms, of {len(gaps)}", flush=True)
    finally:
        page.close()


if __name__ == "__main__":
    main()
