"""Finds an interpreter with a PyTorch that the package weir can use, and with the library transformers."""

import os
import pathlib
import pwd
import subprocess
import sys

MISSING = ("expected a Python with PyTorch 2.5 or later and transformers; found none. Try: tools/bench "
           "--install-torch, or set WEIR_TORCH to such a Python")
_PROBE = """
import torch, transformers
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 5):
    raise SystemExit(1)
"""


def candidates():
    """Returns the interpreters to try: $WEIR_TORCH, this one, and the one that `tools/bench --install-torch` made."""
    if os.environ.get("WEIR_TORCH"):
        return [os.environ["WEIR_TORCH"]]
    # A test has a home folder of its own, so the user's one is looked up.
    home = pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", home / ".cache"))
    return [sys.executable, str(cache / "weir_bench/torch_venv/bin/python")]


def find_torch():
    """Returns the path of the first interpreter that fits, or None."""
    for python in candidates():
        try:
            if subprocess.run([python, "-c", _PROBE], capture_output=True, check=False).returncode == 0:
                return python
        except OSError:  # there is no such interpreter
            continue
    return None
