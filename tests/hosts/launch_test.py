"""Tests that `weir launch` runs a program of any kind on this machine and on hosts: its ranks, its output, its ends."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import time
import unittest

from tests.hosts.host_jobs import HostJobs, LIMIT_S, unwrapped
from tests.hosts.network_lab import ENTER, NetworkLab

SHOW_PLACE = ("sh", "-c", 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE '
                          '$MASTER_ADDR:$MASTER_PORT"')
ANOTHER_REQUEST_S = 0.3  # the same signal sooner is no second one
# Sums the ranks over all processes, as a program of PyTorch would.
SUM_OF_RANKS = """
import torch, torch.distributed as d
d.init_process_group("gloo")
t = torch.ones(1) * (d.get_rank() + 1)
d.all_reduce(t)
print("sum", int(t), flush=True)
d.destroy_process_group()
"""


class Launches(HostJobs):
    """The base of tests that launch programs. `before` are words in front of the command."""

    before = ()
    environment = {}

    def command(self, *arguments):
        # The mark in their environment makes the processes known to expect_nothing_left.
        return dict(args=[*self.before, self.program, "launch", "--env", f"MARK_OF_TEST={self.program}", *arguments],
                    cwd=self.folder, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, text=True)

    def launch(self, *arguments):
        done = subprocess.run(**self.command(*arguments), capture_output=True, timeout=LIMIT_S, check=False)
        print(done.stdout, done.stderr, flush=True)
        self.expect_nothing_left()
        return done

    def start_program(self, *arguments, ready):
        """Starts a program and waits for a number of lines with the word `ready`."""
        job = subprocess.Popen(**self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, job)
        while ready > 0:
            line = job.stdout.readline()
            self.assertTrue(line)
            ready -= "ready" in line
        return job

    def expect_places(self, text, *places):
        """Expects a line for each rank, and the same address and port in all. Returns the address."""
        lines = dict(re.findall(r"(?m)^\[rank (\d+)\] (.*)$", text))
        self.assertEqual(len(lines), len(places), text)
        for rank, place in enumerate(places):
            self.assertEqual(lines[str(rank)].rpartition(" ")[0], place)
        masters = {line.rpartition(" ")[2] for line in lines.values()}
        self.assertEqual(len(masters), 1)
        address, _, port = masters.pop().rpartition(":")
        self.assertGreater(int(port), 0)
        return address


class OnThisMachine(Launches):
    def test_each_process_finds_its_place_and_the_variables(self):
        done = self.launch("--processes", "3", *SHOW_PLACE)
        self.assertEqual(done.returncode, 0)
        address = self.expect_places(done.stdout, "0/3 0/3 0/1", "1/3 1/3 0/1", "2/3 2/3 0/1")
        self.assertEqual(address, "127.0.0.1")
        self.assertEqual(done.stderr, "")
        done = self.launch("--master-port", "4711", "--env", "COLOUR=blue green", "--env", "PATH", "--", "sh", "-c",
                           "echo $MASTER_PORT $COLOUR $PATH")
        self.assertEqual(done.stdout, f"[rank 0] 4711 blue green {os.environ['PATH']}\n")

    def test_a_program_of_pytorch_meets_by_the_variables(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("NOT TESTED: there is no PyTorch here; tools/deps/install --with-oracle installs it")
        done = self.launch("--processes", "2", "--", "python3", "-c", SUM_OF_RANKS)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count("sum 3"), 2)

    def test_the_first_failure_ends_the_others_and_its_code_is_returned(self):
        done = self.launch("--processes", "3", "--", "sh", "-c",
                           'if [ $RANK = 1 ]; then echo it is broken; exit 75; fi; sleep 1000')
        self.assertEqual(done.returncode, 75)
        text = unwrapped(done.stderr)
        self.assertRegex(text, r"first failure: rank 1 \(pid \d+\): exit code 75 its last lines: \| it is broken")
        self.assertIn("2 other workers ended because of it", text)
        log = re.search(r"logs: (\S+); its own: (\S+)", text)
        self.assertEqual(self.read(os.path.join(log[1], log[2])), b"it is broken\n")
        self.assertEqual(self.launch("--", "sh", "-c", "kill -SEGV $$").returncode, 128 + signal.SIGSEGV)

    def test_a_program_without_output_leaves_no_logs(self):
        self.assertEqual(self.launch("--logs", "quiet", "true").returncode, 0)
        self.assertFalse(os.path.exists(self.path("quiet")))

    def test_standard_input_is_empty(self):
        self.assertEqual(self.launch("--processes", "2", "cat").returncode, 0)

    def test_ctrl_c_goes_to_every_process_of_the_program(self):
        # The shell waits for its child, so the child needs the signal, too.
        script = "trap 'echo asked; exit 0' INT; echo ready; sleep 1000 & wait $!; sleep 1000"
        job = self.start_program("--processes", "2", "--", "bash", "-c", script, ready=2)
        job.send_signal(signal.SIGINT)
        self.expect_end(job, 130, r"SIGINT \(2\) goes to 2 processes.*asked.*asked")

    def test_a_second_signal_kills_at_once(self):
        job = self.start_program("--grace", "100", "--", "sh", "-c", "trap '' INT TERM; echo ready; sleep 1000", ready=1)
        job.send_signal(signal.SIGTERM)
        while "goes to" not in job.stdout.readline():
            pass
        time.sleep(ANOTHER_REQUEST_S)
        job.send_signal(signal.SIGTERM)
        self.expect_end(job, 130)

    def test_what_does_not_end_within_the_grace_is_killed(self):
        job = self.start_program("--grace", "0.2", "--", "sh", "-c", "trap '' INT TERM; echo ready; sleep 1000", ready=1)
        job.send_signal(signal.SIGHUP)
        self.expect_end(job, 130)

    def test_user_signals_reach_the_program_and_end_nothing(self):
        script = "trap 'echo saved; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
        job = self.start_program("--", "sh", "-c", script, ready=1)
        job.send_signal(signal.SIGUSR1)
        self.expect_end(job, 7, "saved")

    def test_the_end_of_weir_is_the_end_of_the_program(self):
        job = self.start_program("--processes", "2", "--", "sh", "-c", "echo ready; exec sleep 1000", ready=2)
        job.kill()
        job.communicate(timeout=LIMIT_S)
        self.expect_nothing_left()

    def test_what_cannot_run_is_said(self):
        self.path("plain.sh", "#!/bin/sh\n")
        for arguments, code, wanted in ((("no-such-program",), 69, "W0874 .*no program 'no-such-program' in the folders"),
                                        (("./nothing",), 69, "no program './nothing'"),
                                        (("./plain.sh", "--flag"), 69, "W0874 at host 'localhost': expected a program that may be "
                                         r"executed; found './plain.sh', which is not executable. Try: chmod \+x ./plain.sh, or"),
                                        ((), 2, "COMMAND is required"),
                                        (("--env", "NOT_SET_OF_TEST", "true"), 65, "W0882 at --env.*'NOT_SET_OF_TEST'"),
                                        (("--ranks", "3", "true"), 65, "W0091"),
                                        (("--hosts", "localhost:2", "--processes", "3", "true"), 65, "W0876")):
            with self.subTest(arguments=arguments):
                done = self.launch(*arguments)
                self.assertEqual(done.returncode, code)
                self.assertRegex(unwrapped(done.stderr), wanted)

    def test_output_of_some_ranks_is_shown_and_logs_have_all(self):
        done = self.launch("--processes", "3", "--ranks", "1-2", "--logs", "some", "--", "sh", "-c", "echo I am $RANK")
        self.assertEqual(sorted(done.stdout.splitlines()), ["[rank 1] I am 1", "[rank 2] I am 2"])
        self.assertEqual(self.read("some/latest/rank-0.log"), b"I am 0\n")


class OnHosts(Launches):
    @classmethod
    def setUpClass(cls):
        cls.lab = cls.enterClassContext(NetworkLab(2))
        cls.before = ("ip", "netns", "exec", cls.lab.hub)
        cls.environment = {"WEIR_TEST_STARTER_ADDRESS": cls.lab.address}
        super().setUpClass()

    def on_hosts(self, *arguments, slots=2):
        return ("--hosts", ",".join(f"{host}:{slots}" for host in self.lab.hosts), "--ssh", ENTER, *arguments)

    def test_ranks_fill_the_slots_and_meet_at_the_first_host(self):
        done = self.launch(*self.on_hosts(*SHOW_PLACE))
        self.assertEqual(done.returncode, 0)
        address = self.expect_places(done.stdout, "0/4 0/2 0/2", "1/4 1/2 0/2", "2/4 0/2 1/2", "3/4 1/2 1/2")
        self.assertEqual(address, "10.77.0.1")

    def test_a_program_of_pytorch_meets_across_hosts(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("NOT TESTED: there is no PyTorch here; tools/deps/install --with-oracle installs it")
        done = self.launch(*self.on_hosts("--env", "GLOO_SOCKET_IFNAME=eth0", "--", "python3", "-c", SUM_OF_RANKS, slots=1))
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count("sum 3"), 2)

    def test_a_failure_is_named_with_its_host(self):
        done = self.launch(*self.on_hosts("--", "sh", "-c", 'if [ $RANK = 3 ]; then exit 9; fi; sleep 1000'))
        self.assertEqual(done.returncode, 9)
        self.assertRegex(unwrapped(done.stderr), rf"first failure: rank 3 \(pid \d+ on {self.lab.hosts[1]}\): exit code 9")

    def test_a_stopped_agent_does_not_keep_weir_after_the_grace(self):
        job = self.start_program(*self.on_hosts("--grace", "0.2", "--", "sh", "-c", "echo ready; exec sleep 1000"), ready=4)
        inside = set(self.lab.processes_on(1))
        agent = next(pid for pid in self.processes("agent") if pid in inside)
        os.kill(agent, signal.SIGSTOP)
        try:
            job.send_signal(signal.SIGTERM)
            text, _ = job.communicate(timeout=LIMIT_S)
        finally:
            # The end of its connection may kill the agent first.
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGCONT)
        self.assertEqual(job.returncode, 130, text)
        self.expect_nothing_left()

    def test_a_lost_host_is_named(self):
        job = self.start_program(*self.on_hosts("--", "sh", "-c", "echo ready; exec sleep 1000"), ready=4)
        for pid in self.lab.processes_on(1):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        second = self.lab.hosts[1]
        self.expect_end(job, 69, rf"rank [23] \(pid \d+ on {second}\).*the connection to host '{second}' has ended",
                        rf"try: look at host '{second}'")


if __name__ == "__main__":
    unittest.main()
