"""Tests that a job on hosts that ssh reaches, which are two addresses of the loopback interface with an sshd each, trains
to the bits of one process, and that a host without a key is named."""

import os
import signal
import subprocess
import unittest

from tests.hosts.host_jobs import GPT, HostJobs, LIMIT_S, MANY_STEPS, unwrapped
from tests.hosts.ssh_lab import HOSTS, SshLab
from tests.processes import census

JOB = ("--mesh", "dp=2,tp=2", "--steps", "8")
INTERRUPTED = 130


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

    def test_a_worker_and_a_host_are_lost_and_the_bits_are_those_of_one_process(self):
        """A host in reserve takes the place of the host; the process that lives keeps its states."""
        steps = ("--mesh", "dp=2", "--steps", "1000")
        code, text = self.train(*steps, "--save", "good.st")
        self.assertEqual(code, 0, text)
        job = self.start(*steps, "--save", "moved.st", "--on-failure", "elastic", "--spares", "1", "--hosts",
                         ",".join((*HOSTS, "localhost")), "--ssh", self.servers.command())
        said = self.await_text(job, "step 1/")
        first, second = self.workers()
        os.kill(second, signal.SIGKILL)
        said += self.await_text(job, "a step is done again")
        os.kill(census.parent_of(self.workers()[1]), signal.SIGKILL)
        said += self.await_text(job, "a step is done again")
        self.assertEqual(self.workers()[0], first)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        print(said[-3000:], flush=True)
        self.assertEqual(job.returncode, 0, said)
        self.assertIn("in reserve, if a host is lost: localhost", said)
        self.assertRegex(said, "recovery 1 after step [0-9]+: the process of rank 1 starts anew, and the others live on")
        self.assertIn(f"host '{HOSTS[1]}' is lost, and the process of rank 1 starts anew on host 'localhost', and the others "
                      "live on", said)
        self.assertIn("with states from the memory of rank 0", said)
        self.assertIn("; 2 recoveries", said)
        self.assertEqual(self.read("moved.st"), self.read("good.st"))
        self.expect_nothing_left()

    def test_a_lost_host_leaves_what_it_alone_had_to_the_buddies_on_the_other_host(self):
        """All replicas of the norms of a stage are on one host, because tp lies inside hosts."""
        steps = ("--mesh", "pp=2,tp=2", "--steps", "1000")
        code, text = self.train(*steps, "--save", "whole.st")
        self.assertEqual(code, 0, text)
        hosts = ",".join(f"{host}:2" for host in (*HOSTS, "localhost"))
        job = self.start(*steps, "--save", "buddies.st", "--on-failure", "elastic", "--buddy-every", "2", "--hosts",
                         hosts, "--spares", "1", "--place", "as-written", "--ssh", self.servers.command())
        said = self.await_text(job, "its buddy keeps what has no replica")
        os.kill(census.parent_of(self.workers()[0]), signal.SIGKILL)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertEqual(job.returncode, 0, said)
        self.assertRegex(said, r"with states from the memory of ranks 2-3 \(buddy\)")
        self.assertEqual(self.read("buddies.st"), self.read("whole.st"))
        self.expect_nothing_left()

    def workers(self):
        """Returns the pids of the workers of ranks 0 and 1."""
        ranks = {census.arguments_of(pid)[-1]: pid for pid in self.processes("worker")}
        return ranks["rank 0"], ranks["rank 1"]

    def test_without_another_host_the_others_go_on_with_fewer_replicas_from_memory(self):
        job = self.start("--mesh", "dp=2", "--steps", "1000", "--save", "fewer.st", "--on-failure", "elastic",
                         "--min-devices", "1", "--hosts", ",".join(HOSTS), "--ssh", self.servers.command())
        said = self.await_text(job, "step 1/")
        first, second = self.workers()
        os.kill(census.parent_of(second), signal.SIGKILL)
        said += self.await_text(job, "a step is done again")
        self.assertEqual(list(self.processes("worker")), [first])
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertEqual(job.returncode, 0, said)
        self.assertRegex(said, r"the process of rank 1 does not come back \(no host takes its place\), and the others go on "
                               r"with dp=1 instead of dp=2, and \d+ micro-batches instead of \d+")
        self.assertRegex(said, "epoch 2 goes on without rank 1 on host .*, on 1 device.* in 1 process, with states from "
                               "the memory of rank 0")
        self.assertIn("; 1 recovery", said)
        self.expect_nothing_left()

    def test_after_a_restart_on_a_smaller_mesh_a_lost_process_starts_anew(self):
        """A host is lost, and the last process is lost before a step is done without that host."""
        job = self.start("--mesh", "dp=2", "--steps", MANY_STEPS, "--on-failure", "elastic", "--min-devices", "1",
                         "--checkpoint", "restarted/", "--checkpoint-every", "50", "--hosts", ",".join(HOSTS), "--ssh",
                         self.servers.command())
        said = self.await_text(job, "step 1/")
        first, second = self.workers()
        os.kill(first, signal.SIGSTOP)  # no step is done until the process is killed
        os.kill(census.parent_of(second), signal.SIGKILL)
        said += self.await_text(job, "recovery 1 after step")
        os.kill(first, signal.SIGKILL)
        said += self.await_text(job, "all processes are ready again")
        said += self.await_text(job, "checkpoint of step ")  # a failure after the same step would end the job
        self.kill("worker")
        said += self.await_text(job, " again")
        job.send_signal(signal.SIGTERM)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        print(said[-3000:], flush=True)
        self.assertEqual(job.returncode, INTERRUPTED, said)
        # The first process is lost before or after the news of the second is out.
        self.assertRegex(said, "the other processes (cannot live on|could not go on)")
        self.assertRegex(said, r"recovery 1 after step \d+: .* and the others go on with dp=1 instead of dp=2")
        self.assertIn("restart 1 after step", said)
        self.assertRegex(said, r"recovery \d+ after step \d+: the process of rank 0 starts anew, and no other lives on")
        self.assertNotIn("restart 2", said)
        self.expect_nothing_left()

    def test_a_lost_host_that_is_reached_again_gets_its_processes_back(self):
        """The mesh becomes smaller, and grows again while the process that lives keeps its states."""
        job = self.start("--mesh", "dp=2", "--steps", MANY_STEPS, "--on-failure", "elastic", "--min-devices", "1",
                         "--grow-after", "0.2", "--hosts", ",".join(HOSTS), "--ssh", self.servers.command())
        said = self.await_text(job, "step 1/")
        first, second = self.workers()
        os.kill(census.parent_of(second), signal.SIGKILL)
        said += self.await_text(job, "the mesh has grown after step")
        again, third = self.workers()
        self.assertEqual(again, first)
        self.assertNotEqual(third, second)
        job.send_signal(signal.SIGTERM)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertEqual(job.returncode, INTERRUPTED, said)
        self.assertIn("epoch 2 goes on without rank 1 on host", said)
        self.assertRegex(said, rf"epoch 3 has a new process for rank 1 on host '{HOSTS[1]}', on 2 devices .*, with states "
                               "from the memory of rank 0")
        self.assertIn("; 1 recovery; 1 growth", said)
        self.expect_nothing_left()

    def start_on_a_book(self, *options):
        """Starts a job that reads a text on each host. Returns the path of the text, and the job."""
        self.addCleanup(self.path, "job.textproto", self.read("job.textproto").decode())
        book = self.path("book.txt", "It was the best of times, it was the worst of times. " * 400)
        zoo = subprocess.run([self.program, "zoo", "gpt", *GPT, "--data", book], capture_output=True, text=True, check=True)
        self.path("job.textproto", zoo.stdout)
        return book, self.start("--mesh", "dp=2", "--steps", MANY_STEPS, "--on-failure", "elastic", *options, "--hosts",
                                ",".join(HOSTS), "--ssh", self.servers.command())

    def replace(self, book):
        """Puts another text in the place of the book. Processes that live still read the old one."""
        os.rename(self.path("other.txt", "It was the age of wisdom. " * 800), book)

    def test_a_recovery_on_hosts_does_not_read_another_file(self):
        book, job = self.start_on_a_book()
        said = self.await_text(job, "step 1/")
        self.replace(book)
        os.kill(self.workers()[1], signal.SIGKILL)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertRegex(said, rf"W0883 at {book} on host '.*': expected the file that the starter had as the run began")
        self.assertNotEqual(job.returncode, 0)
        self.expect_nothing_left()

    def test_a_recovery_reads_the_copies_that_the_starter_has_sent_though_its_own_file_is_another(self):
        book, job = self.start_on_a_book("--ship", "--logs", "shipped")
        said = self.await_text(job, "step 1/")
        self.replace(book)
        os.kill(self.workers()[1], signal.SIGKILL)
        said += self.await_text(job, "after the failure")
        self.assertIn("a step is done again", said)
        job.send_signal(signal.SIGTERM)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertEqual(job.returncode, INTERRUPTED, said)
        self.assertNotIn("W0883", said)
        self.expect_nothing_left()

    def test_a_mesh_does_not_grow_if_a_host_that_lives_has_another_file(self):
        book, job = self.start_on_a_book("--min-devices", "1", "--grow-after", "15")
        said = self.await_text(job, "step 1/")
        first, second = self.workers()
        os.kill(census.parent_of(second), signal.SIGKILL)
        said += self.await_text(job, "a step is done again")
        self.replace(book)
        said += self.await_text(job, "the mesh does not grow now")
        said += self.await_text(job, "step ")
        self.assertEqual(self.processes("worker"), [first])
        job.send_signal(signal.SIGTERM)
        rest, _ = job.communicate(timeout=LIMIT_S)
        said = unwrapped(said + rest)
        self.assertEqual(job.returncode, INTERRUPTED, said)
        self.assertRegex(said, rf"the mesh does not grow now: W0883 at {book} on host '{HOSTS[0]}'")
        self.assertNotIn("the mesh has grown", said)
        self.expect_nothing_left()

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
