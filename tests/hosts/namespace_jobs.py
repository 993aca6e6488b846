"""Runs `weir train` on hosts that are network namespaces."""

import os

from tests.hosts.host_jobs import HostJobs, LIMIT_S, MANY_STEPS, QUICK
from tests.hosts.network_lab import ENTER, NetworkLab


class OnHosts(HostJobs):
    """The base of tests on hosts of a lab, with the starter in the hub."""

    NUM_HOSTS = 4

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(NetworkLab(cls.NUM_HOSTS))
        super().setUpClass()

    def start(self, *arguments, hosts=None):
        """Starts a job in the hub; `hosts` is the value of --hosts, and None means one process without hosts."""
        spread = [] if hosts is None else ["--hosts", hosts, "--ssh", ENTER]
        return super().start(*spread, *arguments, before=("ip", "netns", "exec", self.lab.hub),
                             environment={"WEIR_TEST_STARTER_ADDRESS": self.lab.address})

    def train(self, *arguments, hosts=None):
        job = self.start(*arguments, hosts=hosts)
        text, _ = job.communicate(timeout=LIMIT_S)
        return job.returncode, text

    def two(self):
        return ",".join(self.lab.hosts[:2])

    def start_two(self, *arguments):
        """Starts a job that trains until it is disturbed, and returns it after its first step."""
        job = self.start("--mesh", "dp=2", "--steps", MANY_STEPS, *QUICK, *arguments, hosts=self.two())
        self.await_step(job)
        return job
