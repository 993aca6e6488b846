"""Tests the metrics of a run as other tools read them: as a table, and as event files of TensorBoard.

The reader of event files is independent of the writer: it computes checksums bit by bit and reads protobuf by itself.
"""

import csv
import io
import json
import os
import signal
import struct
import unittest

from tests.processes import weir_jobs
from tests.processes.wire_format import fields

POLYNOMIAL = 0x82F63B78  # of CRC32C, turned around
WALL_TIME, STEP, VERSION, SUMMARY, SESSION = 1, 2, 3, 5, 7  # of an event
SESSION_START = 1
TAGS = {"lr": "learning_rate", "step_seconds": "step_time", "tokens_per_second": "tokens_per_s",
        "checkpoint_seconds": "checkpoint_time", "checkpoint_stall_seconds": "checkpoint_stall_time",
        "eval_loss": "eval/loss", "eval_bits_per_byte": "eval/bits_per_byte"}


def crc32c(data):
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (POLYNOMIAL if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def masked(data):
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(data):
    """Returns the events of an event file. Fails if a checksum is wrong or the file ends within an event."""
    events = []
    at = 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "checksum of a length"
        event = data[at + 12:at + 12 + size]
        assert len(event) == size
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(event), "checksum of an event"
        events.append(fields(event))
        at += 16 + size
    return events


def floats(number):
    return struct.unpack("<f", struct.pack("<I", number))[0]


def scalars_of(event):
    """Returns {tag: value} of an event."""
    found = {}
    for summary in map(fields, event[SUMMARY]):
        for value in map(fields, summary[1]):
            found[value[1][0].decode()] = floats(value[2][0])
    return found


class Folder:
    """A Folder is what a reader makes of all event files in a folder, in the order of their names."""

    def __init__(self, path):
        self.starts, self.steps, self.sizes = [], {}, []
        for name in sorted(os.listdir(path)):
            assert name.startswith("events.out.tfevents."), name
            with open(os.path.join(path, name), "rb") as file:
                events = events_of(file.read())
            assert events[0][VERSION] == [b"brain.Event:2"], events[0]
            self.sizes.append(len(events) - 2)
            for event in events[1:]:
                assert WALL_TIME in event
                step = event[STEP][0]
                if event[SESSION]:
                    assert fields(event[SESSION][0])[1] == [SESSION_START]
                    self.starts.append(step)
                    self.steps = {old: values for old, values in self.steps.items() if old < step}
                else:
                    self.steps[step] = scalars_of(event)


class Metrics(weir_jobs.JobCase):
    def lines(self):
        with open(self.place.path("m.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def expect_events(self, folder, lines):
        self.assertEqual(sorted(folder.steps), [line["step"] for line in lines])
        for line in lines:
            values = folder.steps[line["step"]]
            expected = {TAGS.get(name, name): value for name, value in line.items() if name != "step"}
            self.assertEqual(set(values), set(expected))
            for tag, value in expected.items():
                self.assertAlmostEqual(values[tag], value, delta=abs(value) * 1e-6, msg=tag)

    def write_text_job(self):
        self.place.write_text()
        self.write_job("--steps", "12", "--data", "text.txt")

    def test_event_files_hold_what_the_metrics_file_holds(self):
        self.write_text_job()
        self.place.train("--mesh", "dp=2", "--metrics", "m.jsonl", "--tensorboard", "tb", "--checkpoint", "c.st",
                         "--checkpoint-every", "5")
        folder = Folder(self.place.path("tb"))
        self.assertEqual(folder.starts, [1])
        self.expect_events(folder, self.lines())
        last = folder.steps[12]
        for tag in ("loss", "grad_norm", "learning_rate", "tokens_per_s", "step_time", "eval/loss"):
            self.assertIn(tag, last)
        self.assertIn("checkpoint_time", folder.steps[5])

    def test_a_run_is_read_after_the_runs_that_began_in_its_second(self):
        # TensorBoard reads files in the order of their names, and numbers of processes do not grow for ever.
        self.write_text_job()
        first = ("--mesh", "dp=1", "--tensorboard", "tb")
        self.place.train(*first, "--steps", "6")
        (name,) = os.listdir(self.place.path("tb"))
        seconds = int(name.split(".")[3])
        later = f"events.out.tfevents.{seconds + 1000:010}.host.999999.0"
        os.rename(os.path.join(self.place.path("tb"), name), os.path.join(self.place.path("tb"), later))
        self.place.train(*first, "--steps", "3")
        self.assertEqual(sorted(Folder(self.place.path("tb")).steps), [1, 2, 3])

    def test_a_resumed_run_goes_on_where_it_was_resumed(self):
        self.write_text_job()
        first = ("--mesh", "dp=2", "--metrics", "m.jsonl", "--tensorboard", "tb")
        self.place.train(*first, "--steps", "6", "--checkpoint", "c.st")
        self.place.train(*first, "--steps", "9")  # a run from the begin replaces all
        self.assertEqual(sorted(Folder(self.place.path("tb")).steps), list(range(1, 10)))
        self.place.train(*first, "--steps", "12", "--resume", "c.st")
        folder = Folder(self.place.path("tb"))
        self.assertEqual(folder.starts, [1, 1, 7])
        self.assertEqual(folder.sizes, [6, 9, 6])
        latest = {line["step"]: line for line in self.lines()}
        self.expect_events(folder, [latest[step] for step in sorted(latest)])

    def test_the_table_has_a_row_per_line_and_empty_cells(self):
        self.write_text_job()
        self.place.train("--mesh", "dp=2", "--metrics", "m.jsonl", "--checkpoint", "c.st", "--checkpoint-every", "5")
        table = self.place.run("metrics", "csv", "m.jsonl").stdout
        rows = list(csv.DictReader(io.StringIO(table)))
        self.assertTrue(table.startswith("step,loss,grad_norm,lr,tokens_per_second,step_seconds,checkpoint_seconds,"))
        lines = self.lines()
        self.assertEqual(len(rows), len(lines))
        for row, line in zip(rows, lines):
            self.assertEqual({name: float(cell) for name, cell in row.items() if cell}, line)

    def test_a_folder_that_cannot_be_is_refused_before_the_first_step(self):
        self.write_job("--steps", "2")
        ended = self.place.start("--tensorboard", "not/there").wait()
        self.assertEqual(ended.code, 66, ended.err)
        self.assertIn("W0075 at --tensorboard not/there", ended.err)
        ended = self.place.start("--tensorboard", "job.textproto").wait()
        self.assertIn("W0075 at --tensorboard job.textproto", ended.err)
        self.assertFalse([name for name in os.listdir(self.place.folder) if "tfevents" in name])

    def test_files_that_somebody_takes_away_are_begun_anew_with_one_warning_each(self):
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        job = self.place.start("--metrics", "m.jsonl", "--tensorboard", "tb")
        job.wait_for_step()
        weir_jobs.until("lines", lambda: os.path.getsize(self.place.path("m.jsonl")) > 0)
        weir_jobs.until("events", lambda: os.path.isdir(self.place.path("tb")) and os.listdir(self.place.path("tb")))
        os.rename(self.place.path("m.jsonl"), self.place.path("old.jsonl"))
        (events,) = os.listdir(self.place.path("tb"))
        os.unlink(self.place.path(f"tb/{events}"))
        job.wait_for_text("WARNING: --metrics m.jsonl: somebody has renamed the file")
        job.wait_for_text("WARNING: --tensorboard tb: somebody has removed or replaced the file")
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        self.assertEqual(ended.err.count("the file that the run writes. What it had"), 2, ended.err)
        old = [row["step"] for row in self.place.metrics("old.jsonl")]
        new = [line["step"] for line in self.lines()]
        self.assertEqual(old + new, list(range(1, new[-1] + 1)), "each step is in one of the files")
        self.assertIn(f"What it had up to step {old[-1]} is only in {os.path.realpath(self.place.path('old.jsonl'))}",
                      ended.err)
        self.assertEqual(len(os.listdir(self.place.path("tb"))), 1)

    def test_a_full_disk_costs_steps_and_nothing_else(self):
        self.write_job("--steps", "60")
        self.mount_small_disk("full", "4k")
        ended = self.place.train("--mesh", "dp=2", "--tensorboard", "full", "--save", "w.st")
        said = " ".join(ended.err.split())
        self.assertIn("WARNING: --tensorboard full: a step could not be written: No space left on device", said)
        self.assertRegex(said, r"WARNING: --tensorboard full lacks \d+ steps that could not be written")
        steps = sorted(Folder(self.place.path("full")).steps)  # every event is whole
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertTrue(0 < len(steps) < 60, steps)
        self.place.train("--mesh", "dp=2", "--save", "reference.st")
        self.assertTrue(self.place.bytes_of("w.st") == self.place.bytes_of("reference.st"))


if __name__ == "__main__":
    unittest.main()
