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

from tests.bench import bench_collective

BENCH = pathlib.Path("tools/bench").resolve()
LIMIT_S = 600


def sections():
    """Returns the sections that tools/bench names in its error for an unknown section."""
    said = subprocess.run([sys.executable, BENCH, "no-such-section"], capture_output=True, text=True,
                          check=False).stderr
    return re.search(r"there are (.*)", said).group(1).split(", ")


def run(*arguments):
    # The bench must not run ahead of the tests that run at the same time, so its niceness is 0.
    command = [sys.executable, BENCH, *arguments, "--smoke", "--no-build", "--nice", "0", "--binaries", os.getcwd()]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_S, check=False)


class BenchSmokeTest(unittest.TestCase):

    def test_every_section_prints_a_table(self):
        for section in sections():
            with self.subTest(section=section):
                ended = run(section)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(f"== {section} (load", ended.stdout)
                if "NOT TESTED" in ended.stdout:
                    print(ended.stdout)
                    continue
                self.assertGreater(len(ended.stdout.splitlines()), 4, ended.stdout)

    def test_an_interpreter_without_torch_is_named(self):
        ended = run("step", "--torch", "/nowhere/python")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("/nowhere/python cannot", ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)

    def test_the_document_lists_every_section(self):
        document = (BENCH.parent.parent / "docs/how_to/measure.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE)
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
