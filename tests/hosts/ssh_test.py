"""Tests that a job on hosts that ssh reaches, which are two addresses of the loopback interface with an sshd each, trains
to the bits of one process, and that a host without a key is named."""

import os
import shutil
import subprocess
import time
import unittest

from tests.hosts.host_jobs import HostJobs, unwrapped

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
HOSTS = ("127.0.0.2", "127.0.0.3")
JOB = ("--mesh", "dp=2,tp=2", "--steps", "8")
LOOK_S = 0.02


class SshServers:
    """The sshd of each address, with keys that exist for this test alone."""

    def __init__(self, folder):
        self.folder = folder
        self.config = os.path.join(folder, "ssh_config")
        self._servers = []

    def __enter__(self):
        if SSHD is None or shutil.which("ssh") is None:
            raise unittest.SkipTest("NOT TESTED: there is no ssh here; tools/deps/install --with-hosts installs it")
        for key in ("host_key", "user_key", "stranger_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self._path(key)], check=True)
        shutil.copy(self._path("user_key.pub"), self._path("authorized_keys"))
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        port = self._start_servers()
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"Host *\n  Port {port}\n  IdentityFile {self._path('user_key')}\n  IdentitiesOnly yes\n"
                       f"  UserKnownHostsFile {self._path('known_hosts')}\n  StrictHostKeyChecking accept-new\n")
        return self

    def _start_servers(self):
        """Starts both servers at one port that is free at both addresses, and returns the port."""
        for port in range(20000 + os.getpid() % 20000, 65000, 7):
            self._servers = [subprocess.Popen([
                SSHD, "-D", "-e", "-f", "/dev/null", "-o", f"ListenAddress={host}:{port}", "-o", "PidFile=none",
                "-o", f"HostKey={self._path('host_key')}", "-o", f"AuthorizedKeysFile={self._path('authorized_keys')}",
                "-o", "PasswordAuthentication=no", "-o", "StrictModes=no", "-o", "UsePAM=no"
            ], stderr=open(self._path(f"sshd-{host}.log"), "wb")) for host in HOSTS]
            if all(self._listens(host, server) for host, server in zip(HOSTS, self._servers)):
                return port
            self._end_servers()
        raise AssertionError("no free port")

    def _listens(self, host, server):
        while server.poll() is None:
            with open(self._path(f"sshd-{host}.log"), encoding="utf-8", errors="replace") as file:
                if "Server listening" in file.read():
                    return True
            time.sleep(LOOK_S)
        return False

    def _end_servers(self):
        for server in self._servers:
            server.terminate()
            server.wait()

    def __exit__(self, *_):
        self._end_servers()

    def _path(self, name):
        return os.path.join(self.folder, name)

    def command(self, key="user_key"):
        return f"ssh -F {self.config} -i {self._path(key)}"


class SshTest(HostJobs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.servers = cls.enterClassContext(SshServers(cls.folder))

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
