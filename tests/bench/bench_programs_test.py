"""Tests that a program that hangs is ended with all its processes, and that the error says where it was."""

import contextlib
import io
import os
import sys
import time
import unittest

from tests.bench import bench_programs, bench_report, rank_processes

LIMIT_S = 60


def await_process(program, text):
    """Waits until a process of the program is described with the text."""
    deadline = time.monotonic() + LIMIT_S
    while text not in program.described():
        if time.monotonic() > deadline:
            raise AssertionError(f"no process {text} in {program.described()}")
        time.sleep(0.05)


class BenchProgramsTest(unittest.TestCase):

    def test_outputs_come_back(self):
        with bench_programs.Program(["sh", "-c", "echo out; echo err >&2"]) as program:
            self.assertEqual(program.finish(LIMIT_S), ("out\n", "err\n"))

    def test_an_exit_code_is_an_error_with_the_outputs(self):
        with bench_programs.Program(["sh", "-c", "echo some words; exit 3"]) as program:
            with self.assertRaisesRegex(bench_programs.ProgramError, r"(?s)sh -c .* ended with 3\n.*some words"):
                program.finish(LIMIT_S)

    def test_a_program_that_hangs_is_named_with_its_processes_and_its_output(self):
        script = "echo before; sleep 1000 & sleep 2000; wait"
        with bench_programs.Program(["sh", "-c", script]) as program:
            await_process(program, ": sleep 1000")
            await_process(program, ": sleep 2000")
            with self.assertRaises(bench_programs.ProgramError) as raised:
                program.finish(1)
            self.assertEqual(program.processes(), [])
        self.assertEqual(raised.exception.brief, "did not end in 1 s")
        self.assertRegex(str(raised.exception), r"(?s)did not end in 1 s\..*threads: 1 x \w+.*: sleep 1000\n.*before")
        self.assertIn(": sleep 2000", str(raised.exception))

    def test_a_process_whose_parent_has_ended_is_killed_too(self):
        # The shell between ends at once, so the sleeping process has another parent, and a session of its own.
        script = "(setsid sleep 1000 >&2 & echo $!) | cat; sleep 2000"
        with bench_programs.Program(["sh", "-c", script]) as program:
            await_process(program, ": sleep 1000")
            await_process(program, ": sleep 2000")
            with self.assertRaises(bench_programs.ProgramError):
                program.finish(1)
            orphan = int(program.output())
            self.assertIn(bench_programs.state_of(orphan), ("", "Z"))

    def test_an_orphan_that_holds_the_outputs_open_delays_nobody(self):
        begin = time.monotonic()
        with bench_programs.Program(["sh", "-c", "sleep 1000 & echo $!"]) as program:
            output, _ = program.finish(LIMIT_S)
        self.assertLess(time.monotonic() - begin, LIMIT_S)
        self.assertIn(bench_programs.state_of(int(output)), ("", "Z"))

    def test_a_program_around_sees_the_processes_of_a_program_inside(self):
        inside = ("import time; from tests.bench import bench_programs; "
                  "bench_programs.Program(['sleep', '1000']); time.sleep(1000)")
        environment = dict(os.environ, PYTHONPATH=":".join(sys.path))
        with bench_programs.Program([sys.executable, "-c", inside], environment) as program:
            await_process(program, ": sleep 1000")
            program.kill()
            self.assertEqual(program.processes(), [])

    def test_a_peer_that_fails_is_left_out_and_the_row_says_why(self):
        peer = bench_programs.Peer("PyTorch")
        row = bench_report.row("time", "s", [1.0], "PyTorch", [2.0], "lower", 1.0, "a note")
        self.assertEqual(peer.sample(lambda: 2.0), 2.0)
        self.assertEqual(peer.checked(row), row)

        def fail():
            raise bench_programs.ProgramError("did not end in 5 s", "python peer.py did not end in 5 s")

        noted = io.StringIO()
        with contextlib.redirect_stderr(noted):
            self.assertIsNone(peer.sample(fail))
        self.assertIn("python peer.py did not end in 5 s", noted.getvalue())
        self.assertIsNone(peer.sample(lambda: 2.0))
        line = bench_report.line_of(peer.checked(row))
        self.assertEqual((line.verdict, line.ratio, line.note), ("-", "", "a note; PyTorch did not end in 5 s"))


class RankProcessesTest(unittest.TestCase):

    def test_the_end_of_one_process_with_an_error_ends_the_others(self):
        script = "test $RANK = 1 && exec sleep 1000; test -d $MEETING_FOLDER && exit 7"
        begin = time.monotonic()
        self.assertEqual(rank_processes.run(["sh", "-c", script], 2), 7)
        self.assertLess(time.monotonic() - begin, LIMIT_S)

    def test_all_processes_end_well(self):
        self.assertEqual(rank_processes.run(["sh", "-c", "test $RANK -lt $WORLD_SIZE"], 3), 0)


if __name__ == "__main__":
    unittest.main()
