"""Tests that a trace as trace events of JSON tells what the trace tells.

The test reads the trace by itself: the wire format of protobuf, and the few fields of Perfetto's format that it needs.
"""

import collections
import json
import os
import subprocess
import unittest

from tests.processes import weir_jobs
from tests.processes.wire_format import fields

# Fields of Perfetto's TracePacket, TrackEvent, TrackDescriptor and others, by message.
TIMESTAMP, EVENT, TRACK = 8, 11, 60
TYPE, TRACK_OF_EVENT, FLOWS, ENDING_FLOWS, COUNTER = 9, 11, 47, 48, 30
SLICE_BEGIN, SLICE_END, COUNTS = 1, 2, 4
PROCESS, PROCESS_NAME = 3, 6
GROWN_BYTES = 48 << 20
MORE_MEMORY_BYTES = 64 << 20  # beside the file that is mapped


class TraceFacts:
    """TraceFacts are the slices, flows, counters and names of processes of a trace."""

    def __init__(self, data):
        self.slices, self.sends, self.takes, self.counts, self.processes = [], [], [], 0, []
        begun = {}
        for packet in map(fields, fields(data)[1]):
            ns = packet[TIMESTAMP][0]
            for track in map(fields, packet[TRACK]):
                self.processes += [fields(process)[PROCESS_NAME][0].decode() for process in track[PROCESS]]
            for event in map(fields, packet[EVENT]):
                kind, track = event[TYPE][0], event[TRACK_OF_EVENT][0]
                if kind == SLICE_BEGIN:
                    begun[track] = ns
                    self.sends += event[FLOWS]
                    self.takes += event[ENDING_FLOWS]
                elif kind == SLICE_END:
                    self.slices.append((begun.pop(track), ns))
                elif kind == COUNTS:
                    self.counts += 1


def nanoseconds(microseconds):
    """Returns the time of an event. Doubles keep the nanoseconds of about a hundred days."""
    return round(microseconds * 1000)


class Exports(weir_jobs.JobCase):
    def events(self, name):
        return json.loads(self.place.run("trace", "chrome", name).stdout)

    def expect_the_same(self, name):
        facts = TraceFacts(self.place.bytes_of(name))
        whole = self.events(name)
        by_kind = collections.defaultdict(list)
        for event in whole["traceEvents"]:
            by_kind[event["ph"]].append(event)
        slices = [(nanoseconds(e["ts"]), nanoseconds(e["ts"]) + nanoseconds(e["dur"])) for e in by_kind["X"]]
        self.assertEqual(slices, facts.slices)
        self.assertEqual([int(e["id"], 16) for e in by_kind["s"]], facts.sends)
        self.assertEqual([int(e["id"], 16) for e in by_kind["f"]], facts.takes)
        self.assertEqual(len(by_kind["C"]), facts.counts)
        self.assertEqual([e["args"]["name"] for e in by_kind["M"] if e["name"] == "process_name"], facts.processes)
        return whole, by_kind

    def test_counts_times_arrows_and_names_are_those_of_the_trace(self):
        self.write_job("--steps", "4")
        self.place.train("--mesh", "pp=2,dp=2", "--processes", "2", "--trace", "t.pftrace")
        whole, by_kind = self.expect_the_same("t.pftrace")
        self.assertEqual(whole["otherData"]["ranks"], 4)
        self.assertTrue(by_kind["s"] and by_kind["C"])
        sent = {e["id"]: e for e in by_kind["s"]}
        arrows = [taken for taken in by_kind["f"] if taken["id"] in sent]  # of acts before the trace, one end is here
        self.assertGreater(len(arrows), len(by_kind["f"]) / 2)
        for taken in arrows:
            self.assertNotEqual(sent[taken["id"]]["pid"], taken["pid"])
        threads = {(e["pid"], e["tid"]) for e in by_kind["M"] if e["name"] == "thread_name"}
        for event in by_kind["X"] + by_kind["s"] + by_kind["f"]:
            self.assertIn((event["pid"], event["tid"]), threads)
        self.assertEqual({e["args"]["step"] for e in by_kind["X"] if e["cat"] == "act"}, set(range(1, 5)))
        # No act of the first step is left out, whichever process began first.
        first = json.loads(self.place.run("trace", "report", "t.pftrace", "--json", "--step", "1").stdout)
        self.assertEqual(first["why_slow"]["critical_path"]["first_step"], 1)

    def test_memory_does_not_grow_with_the_trace(self):
        self.write_job("--steps", "20")
        self.place.train("--mesh", "dp=2", "--trace", "t.pftrace")
        once = self.place.bytes_of("t.pftrace")
        with open(self.place.path("many.pftrace"), "wb") as file:
            for _ in range(GROWN_BYTES // len(once) + 1):
                file.write(once)
        with open(os.devnull, "wb") as nowhere:
            process = subprocess.Popen([self.place.program, "trace", "chrome", "many.pftrace"], cwd=self.place.folder,
                                       env=self.place.environment, stdout=nowhere)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        mapped = os.path.getsize(self.place.path("many.pftrace"))
        self.assertLess(used.ru_maxrss * 1024, mapped + MORE_MEMORY_BYTES)


if __name__ == "__main__":
    unittest.main()
