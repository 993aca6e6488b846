"""Measures how soon the page of `weir view` shows a trace.

The times are from the command to the address, to the first picture and to the analysis. Usage, in the folder of the
checkout: PYTHONPATH=. python3 tests/view/first_picture.py TRACE. WEIR names the program. The browser runs already.
Frames are counted while the timeline zooms and moves, just after the first picture.
"""

import os
import subprocess
import sys
import time

from tests.view import browser

PROGRAM = os.environ.get("WEIR", "bazel-bin/tools/weir")
FRAMES = """
  return new Promise((done) => {
    const canvas = document.querySelector("canvas"), begin = performance.now();
    let frames = 0;
    const frame = () => {
      if (frames === 60) return done(60000 / (performance.now() - begin));
      ++frames;
      canvas.dispatchEvent(new KeyboardEvent("keydown", {key: frames % 2 ? "w" : "d", bubbles: true}));
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
"""


def main(trace):
    page = browser.Browser()
    begin = time.monotonic()
    with subprocess.Popen([PROGRAM, "view", trace, "--no-open"], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            known = time.monotonic() - begin
            page.driver.get(address + "#view=timeline")
            page.until("the page shows the acts", "return document.documentElement.dataset.ready !== undefined")
            shown = time.monotonic() - begin
            frames = page.run(FRAMES)
            page.until("the analysis is there", "return document.documentElement.dataset.ready === 'yes'")
            analysed = time.monotonic() - begin
            with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
                most = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        finally:
            server.terminate()
            page.close()
    print(f"address {known:.2f} s, first picture {shown:.2f} s, analysis {analysed:.2f} s, {frames:.0f} frames/s, "
          f"{most >> 10} MiB of weir view")


if __name__ == "__main__":
    main(sys.argv[1])
