"""Runs programs under a time limit, and hands on each line as it is printed."""

import os
import selectors
import signal
import subprocess
import time


class OutOfTime(Exception):
    """A program took longer than it was given. The program and its children have ended."""


class Failed(Exception):
    """A phase cannot go on. The message says what was expected and what was found."""


class Skipped(Exception):
    """A phase does not apply here. The message says why."""


def run(command, seconds, on_line=None, env=None, log=None, cwd=None):
    """Runs a command for at most `seconds` and returns (exit code, all that it printed).

    Args:
      on_line: called with each line of standard output and standard error, as it comes.
      env: variables to set in addition to those of this process.
      log: called with text to keep.
    """
    if log:
        log("$ " + " ".join(command))
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               env={**os.environ, **(env or {})}, cwd=cwd, start_new_session=True)
    printed, rest = [], b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = seconds - (time.monotonic() - begin)
                if left <= 0:
                    raise OutOfTime(f"{os.path.basename(command[0])} took more than {seconds:.0f} s")
                if not selector.select(timeout=min(left, 1.0)):
                    continue
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines + ([rest] if not chunk and rest else []):
                    text = line.decode(errors="replace")
                    printed.append(text)
                    if log:
                        log(text)
                    if on_line:
                        on_line(text)
                if not chunk:
                    break
        process.wait(timeout=max(1.0, seconds - (time.monotonic() - begin)))
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"{os.path.basename(command[0])} took more than {seconds:.0f} s") from None
    finally:
        # The program leads a group of its own; whatever the program started and left behind ends with it.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()
    return process.returncode, "\n".join(printed)


def must_run(command, seconds, **options):
    """Runs a command as `run` does and raises Failed with its last lines if the exit code is not 0."""
    code, printed = run(command, seconds, **options)
    if code != 0:
        last = " | ".join(printed.strip().splitlines()[-4:])
        raise Failed(f"{os.path.basename(command[0])}: exit code {code}: {last[:800]}")
    return printed
