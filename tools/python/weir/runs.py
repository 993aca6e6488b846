"""weir.train: starts the program `weir train` and follows its metrics."""

import json
import signal
import subprocess
import tempfile
import time

from weir.errors import Error
from weir.program import find_program

_POLL_SECONDS = 0.1
_STOP_SECONDS = 60


class Run:
    """A Run is a program `weir train` that runs or has run. Iterate over a Run for a dictionary of metrics per step.

    folder  the folder of the job, of metrics.jsonl, of trained.safetensors and of what the program printed (train.log)
    """

    def __init__(self, process, folder):
        self.folder = folder
        self._process = process
        self._stopped = False

    def __iter__(self):
        """Yields the metrics of each step as they come, and raises an Error if the program failed."""
        pending, place = "", 0
        while True:
            ended = self._process.poll() is not None
            try:
                with open(self.folder / "metrics.jsonl", encoding="utf-8") as file:
                    file.seek(place)
                    pending += file.read()
                    place = file.tell()
            except FileNotFoundError:
                pass
            *lines, pending = pending.split("\n")
            for line in lines:
                yield json.loads(line)
            if ended:
                self._check()
                return
            time.sleep(_POLL_SECONDS)

    def wait(self):
        """Waits for the end of the program and returns the metrics of the last step."""
        last = None
        for last in self:
            pass
        return last

    def stop(self):
        """Asks the program to end after the current step, and waits until its files are written."""
        if self._process.poll() is None:
            self._stopped = True
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_STOP_SECONDS)

    def _check(self):
        if self._process.returncode != 0 and not self._stopped:
            text = (self.folder / "errors.log").read_text(encoding="utf-8", errors="replace").strip()
            raise Error(text or f"weir train ended with exit code {self._process.returncode}")


def train(job, *, folder=None, processes=None, mesh=None, steps=None, arguments=()):
    """Starts `weir train` with a job and returns the Run, without waiting.

    folder     where job, weights and results lie; None: the folder of `job.write`, or else a new temporary one
    processes  the number of processes over which the devices are spread; None: one
    mesh       a mesh that replaces the mesh of the job
    arguments  further arguments of `weir train`
    """
    if folder is not None or job.folder is None:
        job.write(folder if folder is not None else tempfile.mkdtemp(prefix="weir-"))
    home = job.folder
    (home / "metrics.jsonl").unlink(missing_ok=True)
    command = [find_program(), "train", home / "job.textproto", "--init", home / "weights.safetensors", "--metrics",
               home / "metrics.jsonl", "--save", home / "trained.safetensors"]
    for option, value in (("--processes", processes), ("--mesh", mesh), ("--steps", steps)):
        if value is not None:
            command += [option, value]
    with open(home / "train.log", "wb") as output, open(home / "errors.log", "wb") as errors:
        process = subprocess.Popen([str(part) for part in [*command, *arguments]], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=errors)
    return Run(process, home)
