"""Tests that a job on hosts that ssh reaches, which are two addresses of the loopback interface with an sshd each, trains
to the bits of one process, and that a host without a key is named."""

import os
import subprocess
import unittest

from tests.hosts.host_jobs import HostJobs, unwrapped
from tests.hosts.ssh_lab import HOSTS, SshLab

JOB = ("--mesh", "dp=2,tp=2", "--steps", "8")


class SshTest(HostJobs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.servers = cls.enterClassContext(SshLab(cls.folder))

    def test_hosts_over_ssh_train_to_the_bits_of_one_process(self):
        code, text = self.train(*JOB, "--save", "one.st")
        self.assertEqual(code, 0, text)
        code, text = self.train(*JOB, "--save", "two.st", "--hosts", ",".join(HOSTS), "--ssh", self.servers.command())
        self.assertEqual(code, 0, text)
        self.assertIn("in 2 processes", text)
        self.assertEqual(self.read("two.st"), self.read("one.st"))

    def test_a_host_that_is_reached_through_another_trains_to_the_same_bits(self):
        """The agent of the first host runs ssh to the second."""
        code, text = self.train(*JOB, "--save", "direct.st")
        self.assertEqual(code, 0, text)
        code, text = self.train(*JOB, "--save", "chain.st", "--hosts", ",".join(HOSTS), "--ssh",
                                self.servers.command(), "--fan-out", "1")
        self.assertEqual(code, 0, text)
        self.assertNotIn("is not reached from", text)
        self.assertEqual(self.read("chain.st"), self.read("direct.st"))
        doctor = subprocess.run([self.program, "doctor", "--commands", "--hosts", ",".join(HOSTS), "--ssh",
                                 self.servers.command(), "--fan-out", "1"], capture_output=True, text=True, check=True)
        self.assertRegex(doctor.stdout, rf"{HOSTS[1]}\s+ssh .* run by {HOSTS[0]}")

    def test_a_host_that_knows_no_key_is_named_with_the_words_of_ssh(self):
        os.rename(self.path("authorized_keys"), self.path("authorized_keys.away"))
        self.addCleanup(os.rename, self.path("authorized_keys.away"),
                        self.path("authorized_keys"))
        code, text = self.train(*JOB, "--hosts", ",".join(HOSTS), "--ssh", self.servers.command())
        print(text, flush=True)
        self.assertEqual(code, 69, text)
        for host in HOSTS:
            self.assertRegex(unwrapped(text), rf"W0872 at host '{host}'.*Permission denied \(publickey")


if __name__ == "__main__":
    unittest.main()
