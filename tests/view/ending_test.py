"""Tests that the page of `weir view` shows what failed in a run, who is missing, and who waits for whom."""

import json
import os
import re
import signal
import unittest

from tests.processes import held_threads
from tests.processes import wire_format
from tests.view import view_case

ACTORS = "caf.actor"  # the name of the threads that run actors
PACKET, SEQUENCE = 1, 10  # fields of a trace and of its packets
WARNING = """
  const c = document.querySelector("canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  const warn = getComputedStyle(document.documentElement).getPropertyValue("--warn").trim();
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(warn.slice(at, at + 2), 16));
  for (let i = 0; i < d.length; i += 4) if (d[i] === red && d[i + 1] === green && d[i + 2] === blue) return true;
  return false;
"""
VIEWS = ("verdict", "timeline", "pipeline", "registers", "devices", "transfers", "skew")


def varint(value):
    done = bytearray()
    while value > 0x7f:
        done.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(done + bytes([value]))


def without_rank(trace, rank):
    """Returns a trace without the packets of a rank."""
    return b"".join(b"\x0a" + varint(len(packet)) + packet for packet in wire_format.fields(trace)[PACKET]
                    if wire_format.fields(packet)[SEQUENCE] != [rank + 2])


class Ending(view_case.ViewCase):
    def export(self):
        self.place.run("view", "t.pftrace", "--export", "run.html")
        return f"file://{self.place.path('run.html')}"

    def report(self):
        return json.loads(self.place.run("trace", "report", "t.pftrace", "--json").stdout)

    def text_of(self, view, page):
        self.browser.open(f"{page}#view={view}")
        return re.sub(r"\s+", " ", self.browser.text())

    def expect_page(self, missing):
        """Checks every view of the page of a trace that lacks a rank. The other ranks wait for that rank."""
        page = self.export()
        for view in VIEWS:
            with self.subTest(view=view):
                self.assertTrue(self.text_of(view, page))
                self.assertEqual(self.browser.messages(), [])
        report = self.report()
        state = report["last_state"]
        self.assertEqual(state["missing_ranks"], [missing])
        verdict = self.text_of("verdict", page)
        self.assertIn(f"The trace lacks rank {missing}: its process ended, or hung, before it could write it.", verdict)
        self.assertIn("The causes, the critical path and the gain of changes are unknown: the run cannot be replayed: "
                      "the other end of register", verdict)
        for rank in state["ranks"]:
            self.assertIn(re.sub(r"\s+", " ", rank["text"]), verdict)
        waiting = [rank for rank in state["ranks"] if rank.get("holder_rank") == missing]
        self.assertTrue(waiting, state)
        for rank in waiting:
            self.assertRegex(rank["text"], rf"needs a (token|free slot) of .* rank {missing}, which the trace lacks$")
        self.assertRegex(state["sentences"][-1], rf"depends? in the end on rank {missing}, which the trace lacks\.$")
        # The text of an open act leads to the end of the timeline, where the wait has no end.
        self.browser.run("[...document.querySelectorAll('.ending button')][0].click()")
        self.assertEqual(self.browser.heading(), "Timeline")
        rows = self.browser.run("return document.querySelector('.timeline').clientHeight")
        self.assertGreater(rows, 26 * 4, "the missing rank has a row of its own")

    def expect_failure(self, rank, what):
        """Checks every view of the page of a trace that has all ranks and marks a failure."""
        page = self.export()
        for view in VIEWS:
            with self.subTest(view=view):
                self.assertTrue(self.text_of(view, page))
                self.assertEqual(self.browser.messages(), [])
        state = self.report()["last_state"]
        self.assertEqual(state["missing_ranks"], [])
        self.assertEqual([(failure["rank"], failure["text"]) for failure in state["failures"]], [(rank, what)])
        verdict = self.text_of("verdict", page)
        self.assertIn(f"The process of rank {rank} failed: {what}.", verdict)
        for of_rank in state["ranks"]:
            self.assertIn(re.sub(r"\s+", " ", of_rank["text"]), verdict)
        self.assertEqual([of_rank["rank"] for of_rank in state["ranks"]], [0, 1, 2, 3])
        # The text of an open act leads to the end of the timeline, where the failure is marked.
        self.browser.run("[...document.querySelectorAll('.ending button')][0].click()")
        self.assertEqual(self.browser.heading(), "Timeline")
        self.browser.until("the mark of the failure", WARNING)

    def test_a_killed_worker_is_marked_and_a_trace_without_it_names_it(self):
        self.write_job("--steps", "1000000")
        job = self.place.start("--mesh", "pp=4", "--processes", "4", "--trace", "t.pftrace")
        workers = job.wait_for_workers(4)
        job.wait_for_step()
        os.kill(workers["2"], signal.SIGKILL)
        self.assertNotEqual(job.wait().code, 0)
        self.expect_failure(2, "killed by SIGKILL (9)")
        # Of a lost host not even the memory can be read.
        with open(self.place.path("t.pftrace"), "r+b") as file:
            rest = without_rank(file.read(), 2)
            file.seek(0)
            file.write(rest)
            file.truncate()
        self.expect_page(2)

    def test_the_acts_of_a_stuck_worker_are_there(self):
        self.write_job("--steps", "1000000")
        job = self.place.start("--mesh", "pp=4", "--processes", "4", "--stuck-after", "2", "--trace", "t.pftrace")
        workers = job.wait_for_workers(4)
        job.wait_for_step()
        try:
            held = held_threads.HeldThreads(held_threads.threads_named(workers["1"], ACTORS))
        except PermissionError:
            self.skipTest("this user may not hold the threads of other processes")
        held.collect_until(lambda: job.starter.poll() is not None, 60)
        self.assertNotEqual(job.wait().code, 0)
        state = self.report()["last_state"]
        self.assertEqual(state["missing_ranks"], [])
        self.assertEqual([failure["text"] for failure in state["failures"]], ["stuck"])
        self.assertEqual([rank["rank"] for rank in state["ranks"]], [0, 1, 2, 3])
        self.assertIn("The job failed: stuck.", self.text_of("verdict", self.export()))

    def test_a_run_that_ended_whole_says_nothing_of_its_end(self):
        self.write_job("--steps", "4")
        self.place.train("--mesh", "dp=2", "--trace", "t.pftrace")
        self.assertNotIn("last_state", self.report())
        self.assertNotIn("did not end whole", self.text_of("verdict", self.export()))


if __name__ == "__main__":
    unittest.main()
