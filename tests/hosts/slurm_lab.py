"""Runs Slurm with four virtual nodes on this machine: munged, slurmctld and a slurmd for each node, in a folder and with
keys of their own. A lab needs root."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from tests.processes import census

NUM_NODES = 4
START_S = 120
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch")
PATH = os.environ.get("PATH", "") + ":/usr/sbin"

CONFIGURATION = """
ClusterName=weir
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
TmpFS={folder}/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=5
MessageTimeout=60
SlurmdTimeout={node_timeout_s}
"""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class SlurmLab:
    def __init__(self, node_timeout_s=300):
        """`node_timeout_s`: when a node whose slurmd is silent counts as down."""
        self._node_timeout_s = node_timeout_s

    def __enter__(self):
        missing = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
        if missing or os.getuid() != 0:
            raise unittest.SkipTest(f"NOT TESTED: Slurm needs root and {', '.join(missing) or 'nothing more'}; "
                                    "tools/deps/install --with-hosts installs its programs")
        self._folder = tempfile.mkdtemp()
        self._daemons = []
        self._slurmd = {}  # by the number of the node
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        os.chmod(self._folder, 0o755)
        ports = free_ports(1 + NUM_NODES)
        text = CONFIGURATION.format(host=socket.gethostname(), folder=self._folder, ports=ports,
                                    node_timeout_s=self._node_timeout_s)
        for number in range(1, NUM_NODES + 1):
            for part in ("spool", "tmp"):
                os.makedirs(os.path.join(self._folder, part, f"n{number}"))
            text += (f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[number]} "
                     "CPUs=2 RealMemory=1000 State=UNKNOWN\n")
        text += f"PartitionName=all Nodes=n[1-{NUM_NODES}] Default=YES State=UP OverSubscribe=YES\n"
        os.makedirs(os.path.join(self._folder, "state"))
        self.configuration = os.path.join(self._folder, "slurm.conf")
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write(text)
        key = os.path.join(self._folder, "munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(1024))
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}",
                     *(f"--{flag}={self._folder}/munge.{name}" for flag, name in
                       (("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))))
        self._await("munged", lambda: os.path.exists(f"{self._folder}/munge.socket"))
        self._daemon("slurmctld", "-D", "-f", self.configuration)
        for number in range(1, NUM_NODES + 1):
            self._start_node(number)
        self.await_nodes()

    def _start_node(self, number):
        self._slurmd[number] = self._daemon("slurmd", "-D", "-N", f"n{number}", "-f", self.configuration)

    def await_nodes(self):
        """Waits until all nodes are free."""
        self._await("the nodes", lambda: self._states() == ["idle"] * NUM_NODES)

    def _daemon(self, program, *arguments):
        log = open(os.path.join(self._folder, f"{program}{len(self._daemons)}.out"), "wb")
        self._daemons.append(subprocess.Popen([shutil.which(program, path=PATH), *arguments], stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log, env=self.environment()))
        log.close()
        return self._daemons[-1]

    def processes_of_node(self, number):
        """Returns the pids of everything that runs on a node: its slurmd, and the steps with their tasks."""
        tasks = [pid for pid in census.all_pids() if census.variable_of(pid, "SLURM_CONF") == self.configuration and
                 census.variable_of(pid, "SLURMD_NODENAME") == f"n{number}"]
        steps = {census.parent_of(pid) for pid in tasks} - set(tasks)
        return [self._slurmd[number].pid, *(pid for pid in steps if "slurmstepd" in census.arguments_of(pid)[0]), *tasks]

    def mend_node(self, number):
        """Starts the slurmd of a node that has lost its processes."""
        self._slurmd[number].wait()
        self._start_node(number)
        self.await_nodes()

    def _states(self):
        found = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%t"], capture_output=True, text=True,
                               env=self.environment(), check=False)
        return found.stdout.split()

    def _await(self, what, is_there):
        end = time.monotonic() + START_S
        while not is_there():
            if time.monotonic() > end:
                raise AssertionError(f"Slurm: {what} did not come within {START_S} s:\n{self._logs()}")
            time.sleep(0.05)

    def _logs(self):
        text = ""
        for name in sorted(os.listdir(self._folder)):
            if name.endswith((".log", ".out")):
                with open(os.path.join(self._folder, name), encoding="utf-8", errors="replace") as file:
                    text += f"{name}:\n{file.read()[-1000:]}\n"
        return text

    def environment(self):
        """Returns the environment in which Slurm's commands find this Slurm."""
        return {**os.environ, "SLURM_CONF": getattr(self, "configuration", "")}

    def __exit__(self, *_):
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
