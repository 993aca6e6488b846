"""Tests that schedulers start a job without a further flag: the bits are those of one process, and the ends are those of
a job that weir starts itself."""

import os
import shutil
import signal
import socket
import subprocess
import time
import unittest

from tests.hosts.host_jobs import HostJobs, LIMIT_S, MANY_STEPS, QUICK, unwrapped
from tests.hosts.slurm_lab import free_ports, SlurmLab
from tests.processes import census

PLAIN = ("--mesh", "dp=2,tp=2", "--steps", "8")
DISTURBED = ("--mesh", "dp=2", "--steps", MANY_STEPS, *QUICK)


class Lane(HostJobs):
    """A way to start a job. Each lane says how it starts `weir train` with a number of tasks, and what the line says."""

    line = ""
    environment = None
    program_needed = None  # beyond those of the lab

    @classmethod
    def setUpClass(cls):
        if cls.program_needed is not None and shutil.which(cls.program_needed) is None:
            raise unittest.SkipTest(f"NOT TESTED: there is no {cls.program_needed}; tools/deps/install --with-hosts "
                                    "installs it")
        super().setUpClass()
        one = subprocess.run([cls.program, "train", "job.textproto", *PLAIN, "--save", "one.st"], cwd=cls.folder,
                             capture_output=True, text=True, check=False)
        assert one.returncode == 0, one.stderr

    def before(self, num_tasks):
        raise NotImplementedError

    def expect_bits(self, num_tasks, name="lane.st"):
        code, text = self.train(*PLAIN, "--save", name, before=self.before(num_tasks), environment=self.environment)
        self.assertEqual(code, 0, text)
        self.assertIn(f"in {num_tasks} processes", text)
        self.assertRegex(unwrapped(text), self.line)
        self.assertEqual(text.count("8 steps, loss"), 1, text)
        self.assertEqual(self.read(name), self.read("one.st"))
        self.expect_nothing_left()

    def start_two(self, *arguments):
        job = self.start(*DISTURBED, *arguments, before=self.before(2), environment=self.environment)
        print(self.await_step(job), flush=True)
        return job

    def expect_a_killed_worker_is_named(self, code=137):
        job = self.start_two()
        self.kill("worker")
        self.expect_end(job, code, r"first failure: rank \d \(pid \d+ on \S+\): killed by SIGKILL")

    def expect_a_missing_task_is_said(self, how, codes=(69,)):
        """One of two tasks is another program, which never joins. `codes` are those that the launcher may return."""
        code, text = self.train(*PLAIN, "--meet-within", "2", ":", "-n", "1", "sleep", "60", before=self.before(1))
        self.assertIn("W0878 at the 2 tasks: expected all of them at the start; found not all have come within 2 s "
                      f"({how} does not say which). Try: the same command of weir in every task", unwrapped(text))
        self.assertIn(code, codes, text)
        self.expect_nothing_left()

    def expect_wrong_use_is_said_once(self):
        for arguments, environment, code, wanted in ((("--no-such-flag",), {}, 2, "unknown flag --no-such-flag"),
                                                     ((), {"WEIR_HOSTS": "a,b"}, 65, "W0880")):
            with self.subTest(wanted=wanted):
                found, text = self.train(*arguments, before=self.before(3),
                                         environment={**(self.environment or {}), **environment})
                self.assertEqual(found, code, text)
                self.assertEqual(unwrapped(text).count(wanted), 1 if code == 2 else 2, text)  # W0880 is in "See:", too

    def expect_what_a_host_lacks_is_said_once_on_it(self, backend):
        """Every task finds that it cannot join. Tasks that trained alone would each train the whole job."""
        code, text = self.train(*PLAIN, "--backend", backend, before=self.before(3), environment=self.environment)
        said = unwrapped(text)
        self.assertEqual(said.count(f"W0879 at the backend {backend}"), 1, text)
        self.assertIn("as the starter; or --hosts with ssh, outside of the starter", said)
        self.assertNotIn("--backend local", said)
        self.assertNotEqual(code, 0, text)
        self.expect_nothing_left()

    def expect_too_many_processes_are_refused(self, starter, codes=(65,)):
        code, text = self.train(*PLAIN, "--processes", "4", before=self.before(2), environment=self.environment)
        self.assertIn(f"W0876 at the tasks of {starter}: expected slots for 4 processes; found 2 tasks. Try: a task for each "
                      f"process ({starter} -n 4), or a smaller --processes", unwrapped(text))
        self.assertEqual(unwrapped(text).count("W0876 at"), 1, text)
        self.assertIn(code, codes, text)
        self.expect_nothing_left()

    def expect_a_refused_job_ends_all(self):
        code, text = self.train("--mesh", "dp=2,xp=0", before=self.before(2), environment=self.environment)
        self.assertEqual(code, 65, text)
        self.assertIn("W0", text)
        self.expect_nothing_left()


class OpenMpi(Lane):
    line = r"hosts: \S+:\d \(backend pmix: PMIX_RANK is set\)"
    program_needed = "mpirun.openmpi"

    def before(self, num_tasks):
        return (self.program_needed, "--allow-run-as-root", "--oversubscribe", "-n", str(num_tasks))

    def test_bits(self):
        self.expect_bits(2)
        self.expect_bits(4)

    def test_a_dry_run_says_that_the_tasks_would_train(self):
        code, text = self.train(*PLAIN, "--dry-run", before=self.before(2))
        self.assertEqual(code, 0, text)
        self.assertIn("spread evenly over the tasks, in one process in each", text)
        self.assertNotIn("in this process", text)

    def test_tasks_of_one_machine_are_one_host(self):
        # If each task were a host, tp would lie inside hosts (namespaces_test.py).
        job = ("--mesh", "tp=4,dp=2", "--set", "graph.dim[batch].size=64", "--steps", "1")
        code, text = self.train(*job, before=self.before(2))
        self.assertEqual(code, 0, text)
        self.assertNotIn("inside hosts", text)

    def test_a_killed_worker_is_named(self):
        self.expect_a_killed_worker_is_named()

    def test_a_refused_job_ends_all_tasks(self):
        self.expect_a_refused_job_ends_all()

    def test_wrong_use_is_said_once(self):
        self.expect_wrong_use_is_said_once()

    def test_what_a_host_lacks_is_said_once_on_it(self):
        self.expect_what_a_host_lacks_is_said_once_on_it("pmi")

    def test_more_processes_than_tasks_are_refused(self):
        self.expect_too_many_processes_are_refused("mpirun")

    def test_a_task_that_never_joins_is_said(self):
        self.expect_a_missing_task_is_said("PMIx")

    def test_the_end_of_mpirun_is_the_end_of_everything_and_the_job_saves(self):
        job = self.start_two("--save", "orphaned.st")
        job.kill()
        job.communicate(timeout=LIMIT_S)
        self.expect_nothing_left()
        self.assertGreater(len(self.read("orphaned.st")), 1000)

    def test_a_killed_agent_is_named(self):
        job = self.start_two()
        os.kill(next(pid for pid in self.processes("train") if self.task(pid) == "1"), signal.SIGKILL)
        text, _ = job.communicate(timeout=LIMIT_S)
        self.assertNotEqual(job.returncode, 0, text)
        self.expect_nothing_left()

    @staticmethod
    def task(pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            for word in file.read().split(b"\0"):
                if word.startswith(b"PMIX_RANK="):
                    return word[10:].decode()
        return ""


class Mpich(Lane):
    line = r"hosts: \S+:\d \(backend pmi: PMI_RANK is set\)"
    program_needed = "mpiexec.hydra"

    def before(self, num_tasks):
        return (self.program_needed, "-n", str(num_tasks))

    def test_bits(self):
        self.expect_bits(3)

    def test_a_killed_worker_is_named(self):
        self.expect_a_killed_worker_is_named()

    def test_a_refused_job_ends_all_tasks(self):
        self.expect_a_refused_job_ends_all()

    def test_wrong_use_is_said_once(self):
        self.expect_wrong_use_is_said_once()

    def test_more_processes_than_tasks_are_refused(self):
        self.expect_too_many_processes_are_refused("mpiexec")

    def test_a_task_that_never_joins_is_said(self):
        # mpiexec kills the other program, and returns the status that it sees last.
        self.expect_a_missing_task_is_said("PMI", codes=(69, signal.SIGKILL))


class Slurm(Lane):
    line = r"hosts: n\d, n\d.* \(backend slurm: SLURM_JOB_ID is set\)"

    @classmethod
    def setUpClass(cls):
        lab = cls.enterClassContext(SlurmLab())
        cls.environment = lab.environment()
        super().setUpClass()

    def before(self, num_tasks):
        return ("srun", f"-N{num_tasks}")

    def test_bits(self):
        self.expect_bits(2)
        self.expect_bits(4)

    def test_several_tasks_on_a_node_are_slots(self):
        code, text = self.train(*PLAIN, "--save", "slots.st", before=("srun", "-N2", "-n4", "--overcommit"),
                                environment=self.environment)
        self.assertEqual(code, 0, text)
        self.assertIn("in 4 processes", text)
        self.assertRegex(text, r"hosts: n\d:2, n\d:2 ")
        self.assertEqual(self.read("slots.st"), self.read("one.st"))

    def test_a_batch_script_needs_no_srun(self):
        script = self.path("batch.sh", f"#!/bin/sh\n{self.program} train job.textproto {' '.join(PLAIN)} --save batch.st\n")
        done = subprocess.run(["sbatch", "-N3", "--wait", "--output", self.path("batch.out"), script], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        text = self.read("batch.out").decode()
        self.assertEqual(done.returncode, 0, text)
        self.assertRegex(text, r"hosts: n\d:2, n\d:2, n\d:2 ")  # a node has two cores, and so two slots
        self.assertEqual(self.read("batch.st"), self.read("one.st"))

    def test_a_cancelled_batch_job_saves(self):
        words = " ".join((*DISTURBED, "--save", "batch_cancelled.st"))
        script = self.path("long.sh", f"#!/bin/sh\nexec {self.program} train job.textproto {words}\n")
        job = subprocess.Popen(["sbatch", "-N2", "--wait", "--job-name", "weir-batch", "--output",
                                self.path("long.out"), script], cwd=self.folder, env=self.environment,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, job)
        end = time.monotonic() + LIMIT_S
        while not os.path.exists(self.path("long.out")) or b"step 1/" not in self.read("long.out"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        subprocess.run(["scancel", "--name", "weir-batch"], env=self.environment, check=True)
        job.communicate(timeout=LIMIT_S)
        self.expect_nothing_left()
        print(self.read("long.out").decode()[-1500:], flush=True)
        self.assertGreater(len(self.read("batch_cancelled.st")), 1000)

    def test_srun_with_pmix(self):
        plugins = subprocess.run(["srun", "--mpi=list"], env=self.environment, capture_output=True, text=True,
                                 check=False)
        if "pmix" not in plugins.stdout + plugins.stderr:
            raise unittest.SkipTest("NOT TESTED: this Slurm has no PMIx")
        code, text = self.train(*PLAIN, "--save", "pmix.st", before=("srun", "--mpi=pmix", "-N2"),
                                environment=self.environment)
        self.assertEqual(code, 0, text)
        self.assertIn("(backend pmix: PMIX_RANK is set)", text)
        self.assertEqual(self.read("pmix.st"), self.read("one.st"))

    def test_any_program_is_launched_with_the_tasks_as_its_ranks(self):
        done = subprocess.run(["srun", "-N2", "-n4", "--overcommit", self.program, "launch", "--", "sh", "-c",
                               "echo $RANK of $WORLD_SIZE, $LOCAL_RANK on $SLURMD_NODENAME"], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        print(done.stdout, done.stderr, flush=True)
        self.assertEqual(done.returncode, 0)
        lines = sorted(line for line in done.stdout.splitlines() if line.startswith("[rank"))
        self.assertEqual(len(lines), 4)
        for rank, line in enumerate(lines):
            self.assertRegex(line, rf"^\[rank {rank}\] {rank} of 4, {rank % 2} on n\d$")
        self.expect_nothing_left()

    def test_a_killed_worker_is_named(self):
        self.expect_a_killed_worker_is_named()

    def test_a_refused_job_ends_all_tasks(self):
        self.expect_a_refused_job_ends_all()

    def test_wrong_use_is_said_once(self):
        self.expect_wrong_use_is_said_once()

    def test_more_processes_than_tasks_are_refused(self):
        self.expect_too_many_processes_are_refused("srun")

    def test_the_end_of_the_starter_is_the_end_of_everything(self):
        job = self.start_two()
        os.kill(self.starter(), signal.SIGKILL)
        job.communicate(timeout=LIMIT_S)
        self.assertNotEqual(job.returncode, 0)
        self.expect_nothing_left()

    def test_a_killed_agent_is_named_with_its_node(self):
        job = self.start_two()
        os.kill(next(pid for pid in self.processes("train") if pid != self.starter()), signal.SIGKILL)
        # srun returns the highest code of its tasks: that of the killed one.
        self.expect_end(job, 137, r"the connection to host 'n\d' has ended", "Exited with exit code 69")

    def starter(self):
        """Returns the pid of the task that has an agent of its own as a child."""
        agents = self.processes("agent")
        return next(pid for pid in self.processes("train") if set(census.children_of(pid)) & set(agents))

    def test_cancelling_ends_after_the_step_and_saves(self):
        job = self.start(*DISTURBED, "--save", "cancelled.st", before=(*self.before(2), "--job-name", "weir-cancel"),
                         environment=self.environment)
        self.await_step(job)
        subprocess.run(["scancel", "--name", "weir-cancel"], env=self.environment, check=True)
        text, _ = job.communicate(timeout=LIMIT_S)
        print(text, flush=True)
        self.expect_nothing_left()
        self.assertGreater(len(self.read("cancelled.st")), 1000)


class FileOfTheStep(HostJobs):
    """The file by which the tasks of a plain srun find each other. The variables alone make the tasks, without Slurm."""

    NUMBER = "4711"

    def task(self, index, *arguments):
        environment = {"SLURM_JOB_ID": self.NUMBER, "SLURM_STEP_ID": "0", "SLURM_PROCID": str(index),
                       "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_RESTART_COUNT": "",
                       "SLURMD_NODENAME": f"n{index}"}
        return self.start(*PLAIN, *arguments, environment=environment)

    def file(self):
        return self.path(f".weir-meeting-{self.NUMBER}.0.")

    def test_a_file_of_an_earlier_job_is_dropped_when_the_first_task_comes(self):
        (port,) = free_ports(1)
        with open(os.open(self.file(), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(f"weir-meeting 1 {'5a' * 32} 127.0.0.1:{port}")
        late = socket.create_server(("127.0.0.1", port))
        other = self.task(1)
        late.accept()[0].close()  # the other task has read the file and dials
        late.close()
        first = self.task(0)
        for task in (first, other):
            text, _ = task.communicate(timeout=LIMIT_S)
            self.assertEqual(task.returncode, 0, text)
        self.expect_nothing_left()

    def test_a_first_task_that_is_asked_to_end_takes_its_file_away(self):
        first = self.task(0)
        end = time.monotonic() + LIMIT_S
        while not os.path.exists(self.file()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        first.send_signal(signal.SIGTERM)
        self.expect_end(first, 130, "interrupted before the first step: no file is written")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(".weir-meeting")], [])


class Indexed(HostJobs):
    """Tasks that know their place in a list, as those of an indexed job of Kubernetes do."""

    HOSTS = "localhost,127.0.0.1,127.0.0.2"

    def setUp(self):
        super().setUp()
        self.port = str(free_ports(1)[0])

    def task(self, index, *arguments, secret="a secret of sixteen bytes"):
        environment = {"JOB_COMPLETION_INDEX": str(index), "WEIR_HOSTS": self.HOSTS, "WEIR_PORT": self.port,
                       "WEIR_SECRET_FILE": self.path(f"secret{index}", secret)}
        return self.start(*arguments, environment=environment)

    def test_bits(self):
        code, text = self.train(*PLAIN, "--save", "one.st")
        self.assertEqual(code, 0, text)
        tasks = [self.task(index, *PLAIN, "--save", "indexed.st") for index in (2, 1, 0)]
        for task in tasks:
            text, _ = task.communicate(timeout=LIMIT_S)
            self.assertEqual(task.returncode, 0, text)
        self.assertIn("in 3 processes", text)
        self.assertIn("hosts: localhost, 127.0.0.1, 127.0.0.2 (backend index: JOB_COMPLETION_INDEX is set", text)
        self.assertEqual(self.read("indexed.st"), self.read("one.st"))
        self.expect_nothing_left()

    def test_a_task_that_is_asked_to_end_lets_the_job_save(self):
        tasks = [self.task(index, *DISTURBED, "--save", "asked.st") for index in (2, 1, 0)]
        self.await_step(tasks[2])
        tasks[0].send_signal(signal.SIGTERM)  # as when a pod is evicted
        for task in tasks:
            task.communicate(timeout=LIMIT_S)
        self.assertEqual([task.returncode for task in tasks], [130, 130, 130])
        self.assertGreater(len(self.read("asked.st")), 1000)
        self.expect_nothing_left()

    def test_every_task_ends_with_the_code_of_the_job(self):
        with self.subTest(job="refused"):
            tasks = [self.task(index, "--mesh", "dp=2,xp=0") for index in (2, 1, 0)]
            texts = [task.communicate(timeout=LIMIT_S)[0] for task in tasks]
            self.assertEqual([task.returncode for task in tasks], [65, 65, 65], texts)
        with self.subTest(job="a worker is killed"):
            tasks = [self.task(index, *DISTURBED) for index in (2, 1, 0)]
            self.await_step(tasks[2])
            self.kill("worker")
            texts = [task.communicate(timeout=LIMIT_S)[0] for task in tasks]
            self.assertEqual([task.returncode for task in tasks], [137, 137, 137], texts)
        self.expect_nothing_left()

    def test_a_lost_starter_is_a_failure_of_every_task(self):
        tasks = [self.task(index, *DISTURBED) for index in (2, 1, 0)]
        self.await_step(tasks[2])
        tasks[2].kill()
        for task in tasks[:2]:
            text, _ = task.communicate(timeout=LIMIT_S)
            self.assertEqual(task.returncode, 69, text)
            self.assertIn("the starter is gone without a word", unwrapped(text))
        self.expect_nothing_left()

    def test_a_task_without_a_list_does_not_train_alone(self):
        secret = self.path("secret", "a secret of sixteen bytes")
        code, text = self.train(*PLAIN, environment={"JOB_COMPLETION_INDEX": "0", "WEIR_SECRET_FILE": secret})
        self.assertEqual(code, 65, text)
        self.assertIn("W0880 at JOB_COMPLETION_INDEX: expected the list of all tasks' hosts", unwrapped(text))

    def test_what_is_wrong_with_a_task_is_said(self):
        for index, secret, wanted in ((3, "a secret of sixteen bytes", "W0880 at JOB_COMPLETION_INDEX"),
                                      ("x", "a secret of sixteen bytes", "W0880 at JOB_COMPLETION_INDEX"),
                                      (0, "short", "a secret of at least 16 bytes; found 5 bytes")):
            with self.subTest(index=index, secret=secret):
                task = self.task(index, *PLAIN, secret=secret)
                text, _ = task.communicate(timeout=LIMIT_S)
                self.assertEqual(task.returncode, 65, text)
                self.assertIn(wanted, unwrapped(text))


class WrongUse(HostJobs):
    def test_what_does_not_fit_together_is_said(self):
        for arguments, environment, code, wanted in (
                (("--backend", "ssh"), {}, 65, "W0880 at --backend ssh: expected the hosts of the job; found none"),
                (("--backend", "slurm", "--hosts", "a"), {}, 65, "W0880 at --backend slurm"),
                (("--backend", "slurm"), {}, 65, "W0870 at SLURM_JOB_NODELIST: expected the nodes of a Slurm job"),
                ((), {"WEIR_HOSTS": "a,,b"}, 65, "W0870 at WEIR_HOSTS, entry 2: expected a host; found nothing"),
                (("--hosts", "a,a"), {"WEIR_HOSTS": "b"}, 65, "W0871 at --hosts, entry 2"),
                (("--hostfile", "/no/file"), {"WEIR_HOSTS": "b"}, 66, "/no/file"),
                (("--hosts", "a"), {"PMIX_NAMESPACE": "n", "PMIX_RANK": "0"}, 65, "W0880 at the list of hosts"),
                (("--backend", "pmi"), {}, 69, "W0879 at the backend pmi"),
                (("--backend", "pmix"), {}, 69, "W0879 at the backend pmix"),
                (("--backend", "slurm"), {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1",
                                          "PATH": "/nowhere"}, 69, "W0879 at the backend slurm: expected srun"),
        ):
            with self.subTest(arguments=arguments):
                found, text = self.train(*PLAIN, *arguments, environment=environment)
                self.assertIn(wanted, unwrapped(text))
                self.assertEqual(found, code, text)


if __name__ == "__main__":
    unittest.main()
