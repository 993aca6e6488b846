"""Finds and runs the program `weir`."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import textwrap

from weir.errors import Error
from weir.textproto import field_text


def find_program():
    """Returns the path of the program: $WEIR, else `weir` in PATH, else the one built in the tree of this package."""
    named = os.environ.get("WEIR")
    if named:
        if not os.access(named, os.X_OK):
            raise Error(f"expected WEIR to name the program; found no program {named}")
        return named
    found = shutil.which("weir")
    if found:
        return found
    built = pathlib.Path(__file__).resolve().parents[3] / "bazel-bin/tools/weir"
    if os.access(built, os.X_OK):
        return str(built)
    raise Error("expected the program `weir`; found neither $WEIR, nor weir in PATH, nor bazel-bin/tools/weir in the "
                "tree of this package. Try: bazel build //tools:weir, or set WEIR to its path")


def run(arguments):
    """Runs the program to its end and returns what it printed. Its error text becomes the text of an Error."""
    done = subprocess.run([find_program(), *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"weir {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout


def add_adapters(job_text, rank, alpha, on, train):
    """Returns the text of a job with adapters beside its weights."""
    options = ["--rank", rank] + ([] if alpha is None else ["--alpha", alpha])
    for flag, patterns in (("--on", on), ("--train", train)):
        for pattern in patterns:
            options += [flag, pattern]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.textproto")
        path.write_text(job_text, encoding="utf-8")
        return run(["lora", "add", path, *options])


def name_dimensions(graph_text):
    """Returns (the text of a graph whose dimensions have their found names, the table of dimensions)."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.textproto")
        path.write_text(f"graph {{\n{graph_text}}}\ndata {{ synthetic {{}} }}\n"
                        "training { steps: 1 schedule { learning_rate: 0.001 } }\n", encoding="utf-8")
        named = run(["dims", path, "--name"])
        return textwrap.dedent(field_text(named, "graph").strip("\n")) + "\n", run(["dims", path])
