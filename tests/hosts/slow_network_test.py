"""Tests that a network with a long way and lost frames changes no bit, and takes nobody for dead.

`tc qdisc ... netem` is the tool for it, and many kernels lack it. So the test runs on a switch, too, which is a process that
carries the frames (slow_switch.py)."""

import os
import subprocess
import sys
import unittest

from tests.hosts import slow_switch
from tests.hosts.host_jobs import HostJobs, LIMIT_S
from tests.hosts.network_lab import ENTER, NetworkLab, run

DELAY_MS = "3"
LOSS = "0.01"


class SlowLab(NetworkLab):
    """A lab whose hosts and hub are connected by a slow switch in place of the bridge."""

    def _make(self):
        self._switch = None
        self._tell_names()
        for name in (self.hub, *self.hosts):
            run("ip", "netns", "add", name)
        seed = os.environ.get("WEIR_TEST_SEED", "7")
        print(f"WEIR_TEST_SEED={seed}", flush=True)
        self._switch = subprocess.Popen([sys.executable, os.path.abspath(slow_switch.__file__), DELAY_MS, LOSS, seed, self.hub,
                                         *self.hosts], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._switch.stdout.readline() != "ready\n":
            raise FileNotFoundError(f"no TAP devices: {self._switch.stderr.read()}")
        for name, address in ((self.hub, self.address), *((host, f"10.77.0.{i + 1}") for i, host in enumerate(self.hosts))):
            inside = ("ip", "netns", "exec", name, "ip")
            run(*inside, "link", "set", "lo", "up")
            run(*inside, "address", "add", f"{address}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        if self._switch is not None:
            self._switch.kill()
            self._switch.communicate()
        super().__exit__()


class NetemLab(NetworkLab):
    """A lab whose hosts send slowly by the kernel's own means."""

    def _make(self):
        super()._make()
        for number in range(len(self.hosts)):
            try:
                self.in_host(number, "/sbin/tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{DELAY_MS}ms",
                             "loss", f"{float(LOSS):.0%}")
            except subprocess.CalledProcessError as error:
                self.__exit__()
                raise unittest.SkipTest(f"NOT TESTED: this kernel has no netem ({error.stderr.strip()}); the switch of "
                                        "SlowSwitch stands in")


class SlowSwitch(HostJobs):
    lab_class = SlowLab

    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(cls.lab_class(2))
        super().setUpClass()

    def in_hub(self, *arguments):
        return self.train("--mesh", "dp=2,tp=2", "--steps", "8", *arguments, before=("ip", "netns", "exec", self.lab.hub),
                          environment={"WEIR_TEST_STARTER_ADDRESS": self.lab.address})

    def test_a_long_way_that_loses_frames_changes_no_bit(self):
        code, text = self.in_hub("--save", "one.st", "--checkpoint", "one.ck")
        self.assertEqual(code, 0, text)
        hosts = ("--hosts", ",".join(self.lab.hosts), "--ssh", ENTER)
        code, text = self.in_hub("--save", "slow.st", "--checkpoint", "slow.ck", *hosts)
        print(text, flush=True)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.read("slow.st"), self.read("one.st"))
        self.assertEqual(self.read("slow.ck"), self.read("one.ck"))
        doctor = subprocess.run(["ip", "netns", "exec", self.lab.hub, self.program, "doctor", *hosts], capture_output=True,
                                text=True, timeout=LIMIT_S, check=False,
                                env={**os.environ, "WEIR_TEST_STARTER_ADDRESS": self.lab.address})
        print(doctor.stdout, doctor.stderr, flush=True)
        self.assertRegex(doctor.stdout, r"10\.77\.0\.2 \d+(\.\d+)? ms")  # the delay shows; how long it is, nobody asserts
        self.expect_nothing_left()


class Netem(SlowSwitch):
    lab_class = NetemLab


if __name__ == "__main__":
    unittest.main()
