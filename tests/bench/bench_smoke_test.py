"""Tests that every section of tools/bench runs, with and without the programs that the section compares with.

The sizes are tiny, so the printed figures mean nothing.
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from tests.bench import bench_collective, bench_programs

BENCH = pathlib.Path("tools/bench").resolve()
LIMIT_S = 600


def sections():
    """Returns the sections that tools/bench names in its error for an unknown section."""
    said = subprocess.run([sys.executable, BENCH, "no-such-section"], capture_output=True, text=True,
                          check=False).stderr
    return re.search(r"there are (.*)", said).group(1).split(", ")


def run(*arguments):
    """Returns the exit code, the standard output and the standard error of tools/bench.

    If tools/bench does not end, the error has its output so far and its processes with what they wait for.
    """
    # The bench must not run ahead of the tests that run at the same time, so its niceness is 0.
    command = [sys.executable, BENCH, *arguments, "--smoke", "--no-build", "--nice", "0", "--binaries", os.getcwd()]
    with bench_programs.Program(command) as program:
        return program.wait(LIMIT_S), program.output(), program.errors()


class BenchSmokeTest(unittest.TestCase):

    def test_every_section_prints_a_table(self):
        for section in sections():
            with self.subTest(section=section):
                code, output, errors = run(section)
                self.assertEqual(code, 0, output + errors)
                self.assertIn(f"== {section} (load", output)
                if "NOT TESTED" in output:
                    print(output)
                    continue
                self.assertGreater(len(output.splitlines()), 4, output)

    def test_an_interpreter_without_torch_is_named(self):
        code, _, errors = run("step", "--torch", "/nowhere/python")
        self.assertEqual(code, 1)
        self.assertIn("/nowhere/python cannot", errors)
        self.assertNotIn("Traceback", errors)

    def test_a_peer_that_hangs_is_a_note_in_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            # This interpreter imports torch, and hangs when it is to run a program.
            python.write_text("#!/bin/sh\ntest \"$1\" = -c || exec sleep 10000\n", encoding="utf-8")
            python.chmod(0o755)
            code, output, errors = run("op", "--torch", python, "--peer-limit", "2")
        self.assertEqual(code, 0, output + errors)
        self.assertIn("PyTorch did not end in 2 s", output)
        self.assertRegex(errors, r"torch_gpt.py .* did not end in 2 s.*\n.*threads: .*: sleep 10000")

    def test_the_document_lists_every_section(self):
        document = (BENCH.parent.parent / "docs/how_to/measure.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\| `(\w+)` \|.*tests/bench/", document, re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(sections()))


class CompileMpiTest(unittest.TestCase):

    def test_a_compiler_without_the_headers_of_mpi_leaves_out_the_comparison(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("mpicxx", "echo 'fatal error: mpi.h: No such file' >&2; exit 1"), ("mpirun", "exit 0")):
                program = pathlib.Path(folder) / name
                program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
                program.chmod(0o755)
            noted = io.StringIO()
            with mock.patch.dict(os.environ, {"PATH": folder}), contextlib.redirect_stderr(noted):
                self.assertIsNone(bench_collective.compile_mpi(pathlib.Path(folder) / "cache"))
            self.assertIn("skips the comparison with Open MPI (fatal error: mpi.h", noted.getvalue())


if __name__ == "__main__":
    unittest.main()
