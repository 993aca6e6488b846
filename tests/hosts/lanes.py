"""The lanes: the ways in which a job is started on two hosts, one class for each.

Every lane runs one process of the job on each host, so that rank 0 has the host of the starter or the first of the list,
and rank 1 has the other one. A drill disturbs the job and looks at its end: it knows the lane alone, and a new lane is
one more class. A lane that this machine cannot have raises unittest.SkipTest with the reason as it is entered.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from tests.hosts.network_lab import ENTER, NetworkLab
from tests.hosts.slurm_lab import free_ports, SlurmLab
from tests.hosts.ssh_lab import SshLab
from tests.processes import census

LIMIT_S = 300  # for anything that should end by itself
LOOK_S = 0.02
MARK = "WEIR_TEST_LANE"
INSTALL = "tools/deps/install --with-hosts installs it"


def until(what, holds, limit_s=LIMIT_S):
    """Waits until holds() is true, and returns its result."""
    end = time.monotonic() + limit_s
    while not (result := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what()}")
        time.sleep(LOOK_S)
    return result


def kill(pids, with_signal=signal.SIGKILL):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended with another one
            os.kill(pid, with_signal)


class Job:
    """The commands that a person has typed for one job, and the processes that have come of them."""

    def __init__(self, lane, commands, environment):
        self._lane = lane
        self._mark = f"{MARK}={os.path.basename(lane.folder)}-{lane.num_jobs}"
        self._name = f"{lane.name}-{lane.num_jobs}"
        mark, _, value = self._mark.partition("=")
        self.shm = census.SharedMemory()
        self.temporary = os.path.join(lane.folder, f"t{lane.num_jobs}")
        os.mkdir(self.temporary)
        environment = {**os.environ, **environment, mark: value, "TMPDIR": self.temporary}
        self.typed = []
        for number, command in enumerate(commands):
            with open(self._output(number), "wb") as output:
                self.typed.append(subprocess.Popen(command, cwd=lane.folder, env=environment, stdin=subprocess.DEVNULL,
                                                   stdout=output, stderr=subprocess.STDOUT))

    def _output(self, number):
        return os.path.join(self._lane.folder, f"{self._name}.out{number}")

    def text(self):
        """Returns what the commands have printed so far."""
        paths = [self._output(number) for number in range(len(self.typed))] + self._lane.more_output()
        text = ""
        for path in paths:
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
                text += file.read()
        return text

    def await_text(self, wanted):
        """Waits until a pattern is printed. Fails if the job ends before."""
        def is_there():
            has_ended = all(each.poll() is not None for each in self.typed)
            found = re.search(wanted, self.text())
            if has_ended and not found:
                raise AssertionError(f"the job has ended:\n{self.text()}")
            return found
        until(lambda: f"{wanted} in\n{self.text()}", is_there)

    def await_end(self):
        """Returns the exit codes of the typed commands, -signal if a signal has ended one."""
        until(lambda: f"the end of\n{self.text()}", lambda: all(each.poll() is not None for each in self.typed))
        return [each.returncode for each in self.typed]

    def processes(self):
        """Returns the pids of all processes that this job has on any host."""
        return census.processes_of(self._lane.program, self._mark)

    def _running(self, verb):
        return [pid for pid in self.processes() if census.arguments_of(pid)[1:2] == [verb]]

    def worker(self, rank):
        (found,) = [pid for pid in self._running("worker") if f"rank {rank}" in census.arguments_of(pid)]
        return found

    def agent(self, rank):
        """Returns the pid of the agent on the host of a rank."""
        return census.parent_of(self.worker(rank))

    def starter(self):
        """Returns the pid of the process that leads the job: one alone, or the one that has an agent as its child."""
        trains = self._running("train")
        agents = set(self._running("agent"))
        return trains[0] if len(trains) == 1 else next(pid for pid in trains if agents & set(census.children_of(pid)))

    def left(self):
        """Returns what the job has left on this machine: processes, files, shared memory."""
        files = [name for name in os.listdir(self._lane.folder) if name.startswith(".weir-meeting")]
        files += [os.path.join(at, name) for at, folders, names in os.walk(self.temporary) for name in folders + names]
        processes = [f"{pid} {' '.join(census.arguments_of(pid))}" for pid in self.processes()]
        return processes + files + self.shm.leftovers()

    def end(self):
        """Ends what a drill that has failed leaves behind."""
        for each in self.typed:
            if each.poll() is None:
                each.kill()
            each.wait()
        kill(self.processes())


class Lane:
    name = ""
    needs = ()                # programs, beyond those of the lab
    hosts = (r"\S+", r"\S+")  # the patterns of their names in reports, by rank
    environment = {}

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.num_jobs = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        missing = [program for program in self.needs if shutil.which(program) is None]
        if missing:
            raise unittest.SkipTest(f"NOT TESTED: there is no {', '.join(missing)}; {INSTALL}")
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _open(self, stack):
        """Makes the hosts, which end with the stack."""

    def _commands(self, words):
        """Returns what a person types, a list of words for each command, to run weir with `words` in the folder."""
        raise NotImplementedError

    def start(self, *words):
        """Starts `weir WORDS` on the hosts."""
        self.num_jobs += 1
        return Job(self, self._commands([self.program, *words]), self.environment)

    def more_output(self):
        """Returns the files beside the standard output of what is typed, of the latest job."""
        return []

    def processes_of_host(self, job):
        """Returns the pids of everything that runs on the host of rank 1."""
        raise NotImplementedError

    def mend_host(self):
        """Makes a host of what processes_of_host has lost."""


class OnNamespaces(Lane):
    """Hosts that are network namespaces."""

    def _open(self, stack):
        self.lab = stack.enter_context(NetworkLab(2))
        self.hosts = tuple(self.lab.hosts)
        self.environment = {"WEIR_TEST_STARTER_ADDRESS": self.lab.address}

    def in_hub(self, *words):
        return ["ip", "netns", "exec", self.lab.hub, *words]

    def processes_of_host(self, job):
        return self.lab.processes_on(1)


class SshOnNamespaces(OnNamespaces):
    name = "ssh on namespaces"

    def _commands(self, words):
        return [self.in_hub(*words, "--hosts", ",".join(self.lab.hosts), "--ssh", ENTER)]


class Ssh(Lane):
    name = "ssh"

    def _open(self, stack):
        self._lab = stack.enter_context(SshLab(self.folder))
        self.hosts = tuple(re.escape(host) for host in self._lab.hosts)

    def _commands(self, words):
        return [[*words, "--hosts", ",".join(self._lab.hosts), "--ssh", self._lab.command()]]

    def processes_of_host(self, job):
        return census.descendants_of(self._lab.server(1))


class Srun(Lane):
    name = "srun"
    hosts = (r"n\d", r"n\d")
    flags = ()

    def _open(self, stack):
        self._lab = stack.enter_context(SlurmLab(node_timeout_s=4))
        self.environment = self._lab.environment()

    def _commands(self, words):
        return [["srun", "-N2", *self.flags, *words]]

    def processes_of_host(self, job):
        node = census.variable_of(job.agent(1), "SLURMD_NODENAME")
        self._number = int(node[1:])
        return self._lab.processes_of_node(self._number)

    def mend_host(self):
        self._lab.mend_node(self._number)


class SrunPmix(Srun):
    name = "srun --mpi=pmix"
    flags = ("--mpi=pmix",)

    def _open(self, stack):
        super()._open(stack)
        plugins = subprocess.run(["srun", "--mpi=list"], env=self.environment, capture_output=True, text=True, check=False)
        if "pmix" not in plugins.stdout + plugins.stderr:
            raise unittest.SkipTest("NOT TESTED: this Slurm has no PMIx")


class Sbatch(Srun):
    name = "sbatch"

    def _commands(self, words):
        script = os.path.join(self.folder, f"batch-{self.num_jobs}.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {' '.join(words)}\n")
        return [["sbatch", "-N2", "--wait", "--output", *self.more_output(), script]]

    def more_output(self):
        return [os.path.join(self.folder, f"batch-{self.num_jobs}.out")]


class Mpi(OnNamespaces):
    """An MPI starter whose remote shell leads into the namespaces."""

    def _open(self, stack):
        super()._open(stack)
        self.shell = os.path.join(self.folder, "remote_shell")
        with open(self.shell, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nwhile :; do case "$1" in -*) shift ;; *) break ;; esac; done\nexec {ENTER} -- "$@"\n')
        os.chmod(self.shell, 0o755)


class OpenMpi(Mpi):
    name = "mpirun"
    needs = ("mpirun.openmpi",)

    def _commands(self, words):
        hosts = ",".join(f"{host}:1" for host in self.lab.hosts)
        return [self.in_hub("mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.shell, "--host", hosts,
                            "-n", "2", *words)]


class Mpich(Mpi):
    name = "mpiexec"
    needs = ("mpiexec.hydra",)

    def _commands(self, words):
        return [self.in_hub("mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", self.shell, "-iface", "bridge0", "-hosts",
                            ",".join(self.lab.hosts), "-ppn", "1", "-n", "2", *words)]


class Indexed(OnNamespaces):
    name = "indexed"

    def _open(self, stack):
        super()._open(stack)
        self.hosts = ("10.77.0.1", "10.77.0.2")
        with open(os.path.join(self.folder, "secret"), "w", encoding="utf-8") as file:
            file.write("a secret of sixteen bytes")

    def _commands(self, words):
        (port,) = free_ports(1)
        self.environment = {"WEIR_HOSTS": ",".join(self.hosts), "WEIR_PORT": str(port),
                            "WEIR_SECRET_FILE": os.path.join(self.folder, "secret"), "WEIR_TEST_STARTER_ADDRESS": ""}
        return [[ENTER, "--", host, f"JOB_COMPLETION_INDEX={index} {' '.join(words)}"]
                for index, host in enumerate(self.lab.hosts)]


ALL = (SshOnNamespaces, Ssh, Srun, SrunPmix, Sbatch, OpenMpi, Mpich, Indexed)
