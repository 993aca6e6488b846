"""Runs drills: one for each kind of fault that happens to a job from outside.

A drill checks that the job names the right culprit, says what to try, and ends with the right exit code. The text "This
is a fault of weir" is the wrong answer to every drill. A drill that needs more rights than the test has is skipped, and
the test says so. This command runs all drills, with all limits, N times over:
WEIR_DRILLS=N WEIR=bazel-bin/tools/weir python3 -m tests.processes.drills_test
"""

import functools
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from tests.processes import census
from tests.processes import disk_drills
from tests.processes import faults
from tests.processes import weir_jobs

ROUNDS = int(os.environ.get("WEIR_DRILLS", "1"))
IS_FULL = "WEIR_DRILLS" in os.environ
SURROUNDINGS = 69
DAMAGED = 66
INTERRUPTED = 130
MANY_STEPS = "1000000"
TWO = ("--mesh", "dp=2", "--processes", "2")
QUICK = ("--heartbeat", "0.2", "--dead-after", "1")
KIB, MIB = 1 << 10, 1 << 20


def some(*values):
    """Returns all values of a limit in a full run, and otherwise enough of the values for every day."""
    return values if IS_FULL else values[1::3]


def drill(test):
    """Repeats a drill. A drill that is not allowed here is skipped with a message."""

    @functools.wraps(test)
    def run(self):
        for _ in range(ROUNDS):
            try:
                test(self)
            except PermissionError as error:
                print(f"NOT DRILLED: {test.__name__}: {error}", file=sys.stderr, flush=True)
                self.skipTest(f"not allowed here: {error}")

    return run


class Drill(weir_jobs.JobCase):
    def start(self, *arguments):
        job = self.place.start(*arguments)
        job.wait_for_step()
        return job

    def expect(self, ended, code, *texts):
        """Checks the end of a job whose surroundings failed it."""
        print(ended.err[-1500:], flush=True)
        self.assertEqual(ended.code, code, ended.err)
        unwrapped = re.sub(r"\s+", " ", ended.err)
        for text in texts:
            self.assertRegex(unwrapped, text)
        self.assertNotIn("fault of weir", unwrapped.lower())
        weir_jobs.until("the end of all processes", lambda: not self.place.processes())


class Connections(Drill):
    @drill
    def test_a_tensor_connection_that_is_cut_is_named_with_both_ranks(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO, "--transport", "tcp")
        workers = job.wait_for_workers(2)
        for descriptor in faults.connections_between(workers["0"], workers["1"]):
            faults.reset(workers["0"], descriptor)
        ended = job.wait()
        self.expect(ended, SURROUNDINGS,
                    r"first failure: rank [01] \(pid \d+\): W0980 at rank [01]: .* rank [01] until .* it broke",
                    "try: .*firewall")

    @drill
    def test_a_control_connection_that_is_cut_is_named(self):
        self.write_job("--steps", MANY_STEPS)
        for transport in ("shm", "tcp"):
            job = self.start(*TWO, "--transport", transport)
            worker = job.wait_for_workers(2)["1"]
            (descriptor,) = faults.connections_between(worker, job.starter.pid)
            faults.reset(worker, descriptor)
            ended = job.wait()
            self.assertEqual(ended.first_failure()[:2], ("1", worker), ended.err)
            self.expect(ended, ended.code, "connection closed", "(try: .*firewall|W0609 at worker)")
            self.assertIn(ended.code, (SURROUNDINGS, 75))


class Suspension(Drill):
    """Tests that a starter that is stopped is no failure at all."""

    STEPS = "400"  # so many that a stop of the starter finds the job at work, however late it comes

    def setUp(self):
        super().setUp()
        self.write_job("--steps", self.STEPS)
        self.place.train(*TWO, "--save", "undisturbed.st")

    def expect_undisturbed(self, ended):
        self.assertEqual(ended.code, 0, ended.err)
        self.assertTrue(self.place.bytes_of("weights.st") == self.place.bytes_of("undisturbed.st"))

    @drill
    def test_a_starter_that_is_stopped_and_goes_on_loses_nothing(self):
        for moment in ("start", "training"):
            job = self.place.start(*TWO, *QUICK, "--stuck-after", "2", "--save", "weights.st")
            if moment == "training":
                job.wait_for_step()
            else:
                job.wait_for_workers(2)
            os.kill(job.starter.pid, signal.SIGSTOP)
            time.sleep(6)  # several times the limits of --dead-after and --stuck-after
            self.assertEqual(len(job.workers()), 2, "workers wait for a starter that is stopped")
            os.kill(job.starter.pid, signal.SIGCONT)
            self.expect_undisturbed(job.wait())

    @drill
    def test_ctrl_z_and_fg_in_a_terminal_lose_nothing(self):
        words = [self.place.program, "train", "job.textproto", *TWO, *QUICK, "--save", "weights.st"]
        script = 'set -m; "$@"; sleep 4; fg; exit $?'  # the commands that a person types after Ctrl-Z
        shell, terminal = pty.fork()
        if shell == 0:
            os.chdir(self.place.folder)
            os.execve("/bin/bash", ["bash", "-c", script, "bash", *words], self.place.environment)
        said = b""
        typed = False
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the terminal is gone with its last process
                break
            said += piece
            if not typed and re.search(rb"step \d", said):
                typed = True
                os.write(terminal, b"\x1a")  # Ctrl-Z
        _, status = os.waitpid(shell, 0)
        os.close(terminal)
        self.assertTrue(typed, said)
        self.assertIn(b"Stopped", said)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0, said)
        self.assertTrue(self.place.bytes_of("weights.st") == self.place.bytes_of("undisturbed.st"))

    @drill
    def test_a_worker_that_is_stopped_is_named_as_stopped(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO, *QUICK)
        worker = job.wait_for_workers(2)["1"]
        os.kill(worker, signal.SIGSTOP)
        ended = job.wait()
        self.assertEqual(ended.first_failure()[:2], ("1", worker), ended.err)
        self.expect(ended, SURROUNDINGS, r"frozen: no heartbeat for 1\.0 s; its process is stopped \(state T\)",
                    "try: .*kill -CONT")

    @drill
    def test_a_stopped_worker_is_named_also_if_the_job_is_stuck_before_the_worker_counts_as_dead(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO, "--dead-after", "60", "--stuck-after", "2")
        worker = job.wait_for_workers(2)["1"]
        os.kill(worker, signal.SIGSTOP)
        ended = job.wait()
        self.expect(ended, SURROUNDINGS, rf"the job: stuck: .*; the process of rank 1 \(pid {worker}\) is stopped \(state T\)")


class Unkillable(Drill):
    def check(self, job, worker):
        """Checks that the report comes first, that it names who remains, and that the end comes within its limit."""
        reported_s = job.wait_for_text("first failure: ")
        job.wait_for_text("still there: rank 1")
        ended = job.wait()
        self.assertLess(time.monotonic() - reported_s, 30)
        self.assertEqual(ended.first_failure()[:2], ("1", worker), ended.err)
        self.assertRegex(ended.err, rf"rank 1 \(pid {worker}\) is left behind: ")
        return ended

    @drill
    def test_a_worker_that_sigkill_does_not_end_is_reported_first_and_left_behind(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO, *QUICK, "--grace", "0.5")
        worker = job.wait_for_workers(2)["1"]
        held = faults.Unkillable(worker)
        ended = self.check(job, worker)
        held.let_go(lambda: not census.is_running(worker), 20)
        self.expect(ended, SURROUNDINGS, "frozen: no heartbeat")

    @drill
    def test_a_worker_in_a_frozen_control_group_is_reported_first_and_left_behind(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO, *QUICK, "--grace", "0.5")
        worker = job.wait_for_workers(2)["1"]
        with faults.frozen_control_group(worker):
            ended = self.check(job, worker)
        self.expect(ended, SURROUNDINGS, "frozen: no heartbeat")


class Data(Drill):
    ONE = ("--mesh", "dp=2")

    def disturb(self, how, *spread):
        self.place.write_text()
        self.write_job("--steps", MANY_STEPS, "--data", "text.txt")
        job = self.start(*spread)
        how(self.place.path("text.txt"))
        return job

    @drill
    def test_text_that_becomes_shorter_is_an_error_with_the_name_of_the_file(self):
        for spread in (self.ONE, TWO):
            ended = self.disturb(lambda path: os.truncate(path, 10), *spread).wait()
            self.expect(ended, DAMAGED, r"W0985 at .*text\.txt: expected .*; found .*became shorter")

    @drill
    def test_text_that_is_written_anew_is_an_error_with_the_name_of_the_file(self):
        def overwrite(path):
            with open(path, "r+b") as file:
                file.write(b"x" * os.path.getsize(path))

        for spread in (self.ONE, TWO):
            ended = self.disturb(overwrite, *spread).wait()
            self.expect(ended, DAMAGED, r"W0985 at .*text\.txt: expected .*; found other contents")

    @drill
    def test_text_that_is_deleted_or_replaced_is_read_as_it_was(self):
        def replace(path):
            self.place.write_text("other.txt", 500)
            os.rename(self.place.path("other.txt"), path)

        for how in (os.unlink, replace):
            job = self.disturb(how, *TWO)
            time.sleep(1)
            job.starter.send_signal(signal.SIGTERM)
            self.expect(job.wait(), INTERRUPTED, "interrupted after step")


class Limits(Drill):
    """Tests `ulimit`. The job names the limit, as an option of ulimit, or trains on.

    The job never crashes, and never reports a fault of weir.
    """

    def train(self, limit, value, *arguments, user=None):
        """Trains under a limit. The job ends by itself, in 20 steps."""

        def restrict():
            resource.setrlimit(limit, (value, value))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)

        self.write_job("--steps", "20")
        if user is not None:
            for folder, _, _ in os.walk(os.path.dirname(self.place.folder)):
                os.chmod(folder, 0o777)
        try:
            result = subprocess.run([self.place.program, "train", "job.textproto", *arguments],
                                    cwd=self.place.folder, env=self.place.environment, preexec_fn=restrict,
                                    capture_output=True, text=True, timeout=weir_jobs.LIMIT_S, check=False)
        except subprocess.TimeoutExpired as hung:
            for pid in self.place.processes():
                os.kill(pid, signal.SIGKILL)
            self.fail(f"hangs: {hung.stderr}")
        code = result.returncode if result.returncode >= 0 else 128 - result.returncode
        weir_jobs.until("the end of all processes", lambda: not self.place.processes())
        return code, result.stderr

    def expect_named(self, limit, value, flag, *arguments, user=None, may_pass=True):
        code, err = self.train(limit, value, *arguments, user=user)
        what = f"ulimit {flag} {value} {' '.join(arguments)}: {code}\n{err[-1500:]}"
        print(what, flush=True)
        if code == 0 and may_pass:
            return
        self.assertIn(code, (SURROUNDINGS, DAMAGED, INTERRUPTED), what)
        self.assertIn(f"ulimit {flag}", re.sub(r"\s+", " ", err), what)
        unwrapped = re.sub(r"\s+", " ", err).lower()
        self.assertNotIn("fault of weir", unwrapped.replace("without them is a fault of weir", ""), what)

    @drill
    def test_too_few_open_files_are_named(self):
        for count in some(8, 16, 20, 24, 28, 32, 40):
            for spread in (("--mesh", "dp=2"), TWO):
                with self.subTest(count=count, spread=spread):
                    self.expect_named(resource.RLIMIT_NOFILE, count, "-n", *spread, "--save", "weights.st")

    @drill
    def test_too_little_address_space_is_named(self):
        for size in some(150, 400, 250, 600, 1000, 2000):
            for spread in (("--mesh", "dp=2"), TWO):
                with self.subTest(size=size, spread=spread):
                    self.expect_named(resource.RLIMIT_AS, size * MIB, "-v", *spread)

    @drill
    def test_too_few_threads_are_named(self):
        if os.geteuid() != 0:
            raise PermissionError("only root can run a job as a user without other processes")
        # Two processes need about 45 threads: of limits just below, the processes got different shares.
        for number, count in enumerate(some(4, 6, 10, 14, 20, 30, 34, 36, 38, 39, 40, 42)):
            for spread in (("--mesh", "dp=2"), TWO):
                with self.subTest(count=count, spread=spread):
                    self.expect_named(resource.RLIMIT_NPROC, count, "-u", *spread, user=54321 + number)

    @drill
    def test_a_limit_of_processor_time_is_named(self):
        for spread in (("--mesh", "dp=2"), TWO):
            with self.subTest(spread=spread):
                self.expect_named(resource.RLIMIT_CPU, 2, "-t", *spread, "--steps", MANY_STEPS, may_pass=False)

    @drill
    def test_a_limit_of_file_size_is_named(self):
        for spread in (("--mesh", "dp=2"), TWO):
            with self.subTest(spread=spread):
                self.expect_named(resource.RLIMIT_FSIZE, 0, "-f", *spread, "--save", "weights.st", may_pass=False)

    @drill
    def test_too_small_a_stack_is_named(self):
        for size in some(128, 64, 512, 2048):
            for spread in (("--mesh", "dp=2"), TWO):
                with self.subTest(size=size, spread=spread):
                    self.expect_named(resource.RLIMIT_STACK, size * KIB, "-s", *spread)


class Network(Drill):
    """Tests a job in a network of its own, whose loopback interface goes down."""

    @drill
    def test_an_interface_that_goes_down_is_told_from_a_fault_of_weir(self):
        if os.geteuid() != 0:
            raise PermissionError("only root can take an interface down")
        self.write_job("--steps", MANY_STEPS)
        script = ("ip link set lo up && { \"$@\" & job=$!; while ! grep -q 'step 1/' err; do sleep 0.1; done; "
                  "ip link set lo down; wait $job; }")
        for options in (("--stuck-after", "60", *QUICK), ("--stuck-after", "3", "--dead-after", "60")):
            with self.subTest(options=options), open(self.place.path("err"), "w+", encoding="utf-8") as err:
                words = [self.place.program, "train", "job.textproto", *TWO, "--transport", "tcp", *options]
                code = subprocess.run(["unshare", "-n", "sh", "-c", script, "sh", *words], cwd=self.place.folder,
                                      env=self.place.environment, stderr=err, stdout=subprocess.DEVNULL,
                                      timeout=weir_jobs.LIMIT_S, check=False).returncode
                err.seek(0)
                self.expect(weir_jobs.Ended(code, "", err.read()), SURROUNDINGS, r"(does not arrive|does not carry)",
                            "try: the network between the processes does not deliver")


class FullOutput(weir_jobs.JobCase):
    """Tests standard output that takes nothing."""

    def run_into(self, output, *words):
        with open(output, "w", encoding="utf-8") as file:
            return subprocess.run([self.place.program, *words], cwd=self.place.folder, env=self.place.environment,
                                  stdout=file, stderr=subprocess.PIPE, text=True, timeout=weir_jobs.LIMIT_S,
                                  check=False)

    @drill
    def test_results_that_cannot_be_written_are_an_error(self):
        for words in (("zoo", "gpt"), ("ops",), ("explain", "W0096"), ("explain",)):
            ended = self.run_into("/dev/full", *words)
            self.assertEqual(ended.returncode, 66, words)
            self.assertIn("W0096 at standard output", ended.stderr)
            self.assertEqual(self.run_into("/dev/null", *words).returncode, 0)

    @drill
    def test_a_run_whose_last_line_cannot_be_written_has_its_files(self):
        self.write_job("--steps", "2")
        self.assertEqual(self.run_into("/dev/full", "train", "job.textproto", "--save", "w.st").returncode, 0)
        self.assertGreater(len(self.place.bytes_of("w.st")), 1000)

    @drill
    def test_a_reader_that_leaves_a_pipe_early_is_no_error(self):
        ended = subprocess.run(f"{self.place.program} ops | head -1; echo ${{PIPESTATUS[0]}}", shell=True,
                               executable="/bin/bash", env=self.place.environment, capture_output=True, text=True,
                               timeout=weir_jobs.LIMIT_S, check=False)
        self.assertIn(ended.stdout.splitlines()[-1], ("0", "141"), ended)
        self.assertEqual(ended.stderr, "")


class Disk(unittest.TestCase):
    """Tests that a checkpoint survives faults in the middle of its writing, and that damages of it are seen."""

    def test_a_job_goes_on_after_faults_at_system_calls_damages_and_kills(self):
        if shutil.which("strace") is None:
            print("NOT DRILLED: faults at system calls need strace (tools/deps/install --with-hosts)", file=sys.stderr)
            self.skipTest("no strace")
        seed = weir_jobs.seed()
        drills = disk_drills.run(2 * ROUNDS, seed)
        self.assertEqual(drills.num_faults(), 0, f"seed {seed}\n{drills.table()}")


class Sockets(Drill):
    @drill
    def test_no_socket_of_a_job_has_a_name_that_every_user_can_write_to(self):
        self.write_job("--steps", MANY_STEPS)
        for transport in ("shm", "tcp", "auto"):
            job = self.start(*TWO, "--transport", transport)
            sockets = census.Sockets()
            sockets.see(job.pids())
            self.assertEqual([name for name in sockets.names if name.startswith("@")], [], transport)
            self.assertEqual(os.listdir(self.place.temporary), [])
            job.starter.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait().code, INTERRUPTED)

    @drill
    def test_silent_connections_to_the_starters_port_do_not_delay_a_job(self):
        import socket

        self.write_job("--steps", "5")
        job = self.place.start(*TWO, "--dead-after", "60")
        workers = job.wait_for_workers(2)
        for pid in workers.values():
            os.kill(pid, signal.SIGSTOP)  # before the workers reach the port
        ports = weir_jobs.until("the port", lambda: census.listeners_of([job.starter.pid]))
        silent = [socket.create_connection(ports[0]) for _ in range(200)]
        for pid in workers.values():
            os.kill(pid, signal.SIGCONT)
        ended = job.wait()
        self.assertEqual(ended.code, 0, ended.err)
        for connection in silent:
            connection.close()

    @drill
    def test_no_memory_of_a_job_goes_into_core_dumps(self):
        self.write_job("--steps", MANY_STEPS)
        job = self.start(*TWO)
        for pid in job.pids():
            with open(f"/proc/{pid}/coredump_filter", encoding="ascii") as file:
                self.assertEqual(int(file.read(), 16), 0)
        job.end()


if __name__ == "__main__":
    unittest.main()
