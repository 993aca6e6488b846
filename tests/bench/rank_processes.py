"""Runs a command in several processes, as PyTorch's torchrun does, with the variables RANK, LOCAL_RANK and WORLD_SIZE.

The processes meet in the folder that MEETING_FOLDER names. A folder cannot be taken by another program, as a port can
between its choice and its use. If one process fails, the other processes would wait for it for half an hour, so they
are killed.
"""

import os
import subprocess
import tempfile
import time

POLL_SECONDS = 0.005


def run(command, count):
    """Returns the exit code of the first process that fails, or 0 after all processes have ended well."""
    with tempfile.TemporaryDirectory() as folder:
        common = dict(os.environ, MEETING_FOLDER=folder, WORLD_SIZE=str(count))
        processes = [subprocess.Popen(command, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)))
                     for rank in range(count)]
        while True:
            codes = [process.poll() for process in processes]
            failed = [abs(code) for code in codes if code]
            if failed or None not in codes:
                break
            time.sleep(POLL_SECONDS)
        for process in processes:
            process.kill()  # does nothing to a process that has ended
            process.wait()
    return failed[0] if failed else 0
