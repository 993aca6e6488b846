"""Drills on every lane: a process, an agent, the starter or a whole host ends, a process is stopped, the network is cut.
Each looks at what is reported, at the exit code of each command that a person has typed, and at what is left."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tests.hosts import lanes
from tests.hosts.host_jobs import GPT, MANY_STEPS, PROGRAM, QUICK, unwrapped
from tests.hosts.lanes import kill, until

GONE_S = 90  # for an agent beyond a cut network: it asks the kernel for 10 s whether the starter's machine answers
SECOND = r"first failure: rank 1 \(pid \d+ on {host}\): "
LOST = SECOND + (r"lost: (its connection closed; )?the connection to host '{host}' has ended.*"
                 r"try: look at host '{host}': is it up, and is its network\?")
KILLED = SECOND + r"killed by SIGKILL \(9\)"
STOPPED = SECOND + r"frozen: no heartbeat for 1\.5 s; its process is stopped \(state T\)"
SLURM = (lanes.Srun, lanes.SrunPmix)


class DrillsBase(unittest.TestCase):
    lane_class = None

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.program = shutil.copy(PROGRAM, os.path.join(cls.folder, "weir"))
        zoo = subprocess.run([cls.program, "zoo", "gpt", *GPT], capture_output=True, text=True, check=True)
        with open(os.path.join(cls.folder, "job.textproto"), "w", encoding="utf-8") as file:
            file.write(zoo.stdout)
        cls.lane = cls.enterClassContext(cls.lane_class(cls.program, cls.folder))

    def start(self, *words, steps=MANY_STEPS, limits=QUICK):
        """Starts a job, and returns it after its first step."""
        job = self.lane.start("train", "job.textproto", "--mesh", "dp=2", "--steps", steps, *limits, *words)
        self.addCleanup(job.end)
        job.await_text("step 1/")
        return job

    def expect_end(self, job, codes, *reports, litter=()):
        """Waits for the end. The codes are those of the typed commands, several for one if the launcher is not of one mind;
        None stands for any. A host that dies or is cut off leaves the `litter` of its launcher: files and processes whose
        texts have a part of it."""
        found = job.await_end()
        text = unwrapped(job.text())
        print(f"{self.lane.name}: {found}\n{text[-1500:]}", flush=True)
        for report in reports:
            self.assertRegex(text, report.format(host=self.lane.hosts[1], first=self.lane.hosts[0]))
        self.assertEqual(len(found), len(codes))
        for code, wanted in zip(found, codes):
            if wanted is not None:
                self.assertIn(code, wanted if isinstance(wanted, tuple) else (wanted,), text)

        def left():
            return [thing for thing in job.left() if not any(part in thing for part in litter)]
        until(lambda: f"nothing left; found {left()}", lambda: not left(), GONE_S)


class Drills(DrillsBase):
    """The drills of one lane. A row of CODES or REPORTS is for the lanes that differ from the rest."""

    CODES = {
        "a worker is killed": [137],
        "an agent is killed": [69],
        "the starter is killed": [-signal.SIGKILL],
        "a host goes": [69],
        "a worker is stopped": [69],
    }
    REPORTS = {
        "a worker is killed": KILLED,
        "an agent is killed": LOST,
        "the starter is killed": r"step 1/",
        "a host goes": LOST,
        "a worker is stopped": STOPPED,
    }
    # srun returns the highest code of its tasks, mpirun that of the task whose end it sees first; an end of its daemon on a
    # host it sees as 205, or as 9 if the end of the remote shell comes first. mpiexec ends all tasks at once, and the
    # starter among them before it has said why; mpirun leaves the starter a second, which a loaded machine may need.
    # sbatch --wait returns 1 for a batch script that a signal has ended.
    CODES_OF = {
        lanes.Srun: {"an agent is killed": [137], "the starter is killed": [137]},
        lanes.SrunPmix: {"an agent is killed": [137], "the starter is killed": [137]},
        lanes.Sbatch: {"the starter is killed": [1]},
        lanes.OpenMpi: {"an agent is killed": [(69, 137)], "the starter is killed": [(69, 137)], "a host goes": [(9, 205)]},
        lanes.Mpich: {"an agent is killed": [(9, 255)], "the starter is killed": [(9, 255)], "a host goes": [255]},
        lanes.Indexed: {"a worker is killed": [137, 137], "an agent is killed": [69, 137],
                        "the starter is killed": [137, 69], "a host goes": [69, None], "a worker is stopped": [69, 69]},
    }
    REPORTS_OF = {
        lanes.Srun: {"the starter is killed": r"task 0: Killed"},
        lanes.SrunPmix: {"the starter is killed": r"task 0: Killed"},
        lanes.OpenMpi: {"an agent is killed": LOST + r"|process rank 1 with PID \d+ on node {host} exited on signal 9",
                        "the starter is killed": r"process rank 0 with PID \d+ on node {first} exited on signal 9|"
                                                 r"Process name: \[\[\d+,1\],1\] Exit code: 69",
                        "a host goes": LOST + "|ORTE (has lost communication with a remote|was unable to reliably start) "},
        lanes.Mpich: {"an agent is killed": r"PID \d+ RUNNING AT {host} = EXIT CODE: 9",
                      "the starter is killed": r"PID \d+ RUNNING AT {first} = EXIT CODE: 9", "a host goes": "mpiexec"},
        lanes.Indexed: {"the starter is killed": r"the starter is gone without a word, so the job ends here"},
    }

    def drill(self, event, disturb, litter=()):
        job = self.start()
        disturb(job)
        codes = self.CODES_OF.get(self.lane_class, {}).get(event, self.CODES[event])
        report = self.REPORTS_OF.get(self.lane_class, {}).get(event, self.REPORTS[event])
        self.expect_end(job, codes, report, litter=litter)

    def test_a_worker_is_killed(self):
        self.drill("a worker is killed", lambda job: kill([job.worker(1)]))

    def test_an_agent_is_killed(self):
        self.drill("an agent is killed", lambda job: kill([job.agent(1)]))

    def test_the_starter_is_killed(self):
        self.drill("the starter is killed", lambda job: kill([job.starter()]))

    def test_a_host_goes(self):
        self.drill("a host goes", lambda job: kill(self.lane.processes_of_host(job)), litter=("/ompi.",))
        self.lane.mend_host()

    def test_a_worker_is_stopped_for_ever(self):
        self.drill("a worker is stopped", lambda job: kill([job.worker(1)], signal.SIGSTOP))


class Cuts(DrillsBase):
    """The network is cut between hosts that are namespaces."""

    lane_class = lanes.SshOnNamespaces
    STEPS = "2000"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        lab = cls.lane.lab
        cls.cuts = {"a host from all": (lambda: lab.cut(1), lambda: lab.mend(1)),
                    "the workers' hosts from each other": (lab.isolate, lab.join),
                    "one way between the workers' hosts": (lab.deafen, lab.hear)}

    def cut(self, which):
        cut, mend = self.cuts[which]
        cut()
        self.addCleanup(mend)
        return mend

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def expect_nothing_lost(self, which, seconds, limits=QUICK):
        """Cuts for a while; the job goes on afterwards, to the bits of one process."""
        if not os.path.exists(os.path.join(self.folder, "one.st")):
            subprocess.run([self.program, "train", "job.textproto", "--mesh", "dp=2", "--steps", self.STEPS, "--save",
                            "one.st"], cwd=self.folder, check=True, capture_output=True)
        job = self.start("--save", "cut.st", steps=self.STEPS, limits=limits)
        mend = self.cut(which)
        time.sleep(seconds)  # the length of the cut
        self.assertIsNone(job.typed[0].poll(), job.text())
        mend()
        self.expect_end(job, [0], rf"{int(self.STEPS):,} steps, loss")
        self.assertEqual(self.read("cut.st"), self.read("one.st"))


class CutsOverSsh(Cuts):
    def test_a_short_cut_loses_nothing(self):
        for which in self.cuts:
            with self.subTest(which=which):
                self.expect_nothing_lost(which, 1, ("--heartbeat", "0.3", "--dead-after", "8"))

    def test_workers_that_reach_the_starter_outlast_a_cut_between_them(self):
        for which in list(self.cuts)[1:]:
            with self.subTest(which=which):
                self.expect_nothing_lost(which, 3)

    def test_a_long_cut_between_workers_is_a_standstill_that_names_the_way(self):
        job = self.start("--stuck-after", "4")
        self.cut("the workers' hosts from each other")
        self.expect_end(job, [69], r"first failure: the job: stuck: no actor of any rank has acted for 4\.0 s; data between "
                        r"processes does not arrive",
                        r"\d+ bytes from 10\.77\.0\.(1:\d+ to 10\.77\.0\.2|2:\d+ to 10\.77\.0\.1):\d+ were sent \d+ times")

    def test_a_host_that_is_cut_off_for_long_is_named(self):
        job = self.start()
        self.cut("a host from all")
        self.expect_end(job, [69], SECOND + r"frozen: no heartbeat for 1\.5 s; its process is asleep .*the network does not "
                        "carry what it says")


class CutsOverSockets(Cuts):
    """The agents themselves are reached over the network that is cut."""

    lane_class = lanes.Indexed

    def test_a_host_that_is_cut_off_for_long_is_named_and_ends_by_itself(self):
        job = self.start()
        self.cut("a host from all")
        self.expect_end(job, [69, 69], SECOND + r"frozen: no heartbeat for 1\.5 s; its host '{host}' does not answer either",
                        "the starter's machine is silent, so the job ends here")
        self.assertNotIn("waiting 10 s", job.text(), "for a process that nobody sees")


class CutsUnderMpirun(Cuts):
    """mpirun has a connection of its own to each host, and waits until the system gives that up."""

    lane_class = lanes.OpenMpi

    def test_mpirun_returns_the_code_of_the_job_once_the_system_gives_its_connection_up(self):
        self.lane.lab.in_hub("sh", "-c", "echo 5 > /proc/sys/net/ipv4/tcp_retries2")  # 13 s instead of 15 minutes
        job = self.start()
        self.addCleanup(lambda: kill(self.lane.processes_of_host(job)))  # what mpirun has left beyond the cut
        self.cut("a host from all")
        self.expect_end(job, [69], SECOND + r"frozen: no heartbeat for 1\.5 s; its host '{host}' does not answer either",
                        litter=("orted ", "/ompi."))


for one in lanes.ALL:
    globals()[f"On{one.__name__}"] = type(f"On{one.__name__}", (Drills,), {"lane_class": one})


def load_tests(loader, tests, pattern):
    """Leaves out the bases."""
    del pattern
    kept = unittest.TestSuite()
    for value in list(globals().values()):
        if isinstance(value, type) and issubclass(value, DrillsBase) and value not in (DrillsBase, Drills, Cuts):
            kept.addTests(loader.loadTestsFromTestCase(value))
    return kept


if __name__ == "__main__":
    unittest.main()
