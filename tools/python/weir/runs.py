"""weir.train: starts the program `weir train` and follows its metrics."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import weakref

from weir.errors import Error
from weir.program import find_program
from weir.remedies import with_remedy

_POLL_SECONDS = 0.1
_STOP_SECONDS = 60


class Run:
    """A Run is a program `weir train` that runs or has run. Iterate over a Run for a dictionary of metrics per step.

    The program ends with its Run: when a `with` block of the Run ends, when nothing refers to the Run any more, or when
    Python ends. The program then ends after its current step, and writes the weights.

    folder  the folder of the job, of metrics.jsonl, of trained.safetensors and of what the program printed: results in
            train.log, and progress and errors in program.log. A folder that `train` made is removed with the Run.
    """

    def __init__(self, process, folder, own_folder=False):
        self.folder = folder
        self._process = process
        self._stopped = False
        self._close = weakref.finalize(self, _close, process, folder if own_folder else None, os.getpid())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

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
            if not _stop(self._process):
                raise Error(f"expected the program to end within {_STOP_SECONDS} s; found it in a step that takes "
                            "longer. The program ends after this step. Try: run.wait()")

    def close(self):
        """Stops the program, and removes the folder if `train` made it."""
        self._stopped = self._stopped or self._process.poll() is None
        self._close()

    def _check(self):
        if self._process.returncode != 0 and not self._stopped:
            log = self.folder / "program.log"
            text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
            raise Error(with_remedy(text) or f"weir train ended with exit code {self._process.returncode}")


def _stop(process):
    """Asks a program to end, and returns whether the program ended in time."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return False
    return True


def _close(process, own_folder, owner):
    """Ends what belongs to a Run. A fork of the process that made the Run leaves it alone."""
    if os.getpid() == owner and _stop(process) and own_folder is not None:
        shutil.rmtree(own_folder, ignore_errors=True)


def train(job, *, folder=None, processes=None, mesh=None, steps=None, arguments=()):
    """Starts `weir train` with a job and returns the Run, without waiting. The program ends with the Run.

    folder     where job, weights and results lie; None: the folder of `job.write`, or else a temporary one that is
               removed with the Run
    processes  the number of processes over which the devices are spread; None: one
    mesh       a mesh that replaces the mesh of the job
    arguments  further arguments of `weir train`, as a list or as a text such as "--seed 3"
    """
    program = find_program()
    own_folder = folder is None and job.folder is None
    if own_folder:
        home = pathlib.Path(tempfile.mkdtemp(prefix="weir-"))
        try:
            job.write_files(home)
            process = _start(program, home, processes, mesh, steps, arguments)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
    else:
        if folder is not None:
            job.write(folder)
        home = job.folder
        process = _start(program, home, processes, mesh, steps, arguments)
    return Run(process, home, own_folder)


def _start(program, home, processes, mesh, steps, arguments):
    """Starts the program on the job and the weights of a folder."""
    (home / "metrics.jsonl").unlink(missing_ok=True)
    command = [program, "train", home / "job.textproto", "--init", home / "weights.safetensors", "--metrics",
               home / "metrics.jsonl", "--save", home / "trained.safetensors"]
    for option, value in (("--processes", processes), ("--mesh", mesh), ("--steps", steps)):
        if value is not None:
            command += [option, value]
    command += shlex.split(arguments) if isinstance(arguments, str) else arguments
    with open(home / "train.log", "wb") as output, open(home / "program.log", "wb") as errors:
        return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
