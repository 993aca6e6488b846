"""Tests that a job on several hosts, which are network namespaces, trains to the bits of one process, and that what
goes wrong with a host, a process or the network is named."""

import os
import re
import signal
import subprocess
import time
import unittest

from tests.hosts.host_jobs import GPT, LIMIT_S, QUICK, unwrapped
from tests.hosts.namespace_jobs import OnHosts
from tests.hosts.network_lab import ENTER


class Bits(OnHosts):
    def test_two_and_four_hosts_train_to_the_bits_of_one_process(self):
        plain = ("--mesh", "dp=2,tp=2", "--steps", "8")
        code, text = self.train(*plain, "--save", "one.st", "--checkpoint", "one.ck")
        self.assertEqual(code, 0, text)
        for count in (2, 4):
            with self.subTest(hosts=count):
                code, text = self.train(*plain, "--save", "some.st", "--checkpoint", "some.ck", "--trace", "t.pftrace",
                                        hosts=",".join(self.lab.hosts[:count]))
                self.assertEqual(code, 0, text)
                self.assertIn(f"in {count} processes", text)
                self.assertEqual(self.read("some.st"), self.read("one.st"))
                self.assertEqual(self.read("some.ck"), self.read("one.ck"))
                report = subprocess.run([self.program, "trace", "report", self.path("t.pftrace")], capture_output=True,
                                        text=True, check=True)
                self.assertIn("rank 3", report.stdout)
        self.expect_nothing_left()

    def test_slots_give_a_host_several_processes_and_a_checkpoint_resumes_on_others(self):
        first, second = self.lab.hosts[:2]
        self.path("hosts.txt", f"# two hosts\n{first} slots=3\n{second} slots=1\n")
        code, text = self.train("--mesh", "dp=4", "--steps", "4", "--checkpoint", "half.ck")
        self.assertEqual(code, 0, text)
        code, text = self.train("--mesh", "dp=4", "--steps", "8", "--resume", "half.ck", "--save", "resumed.st",
                                "--hostfile", "hosts.txt", "--ssh", ENTER)
        self.assertEqual(code, 0, text)
        self.assertIn("in 4 processes", text)
        code, text = self.train("--mesh", "dp=4", "--steps", "8", "--save", "straight.st")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.read("resumed.st"), self.read("straight.st"))


class Files(OnHosts):
    """Files that the hosts have for themselves: each sees an empty folder where the starter has the inputs."""
    NUM_HOSTS = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.mkdir(cls.path("inputs"))
        with open(cls.path("inputs/book.txt"), "w", encoding="utf-8") as file:
            file.write("It was the best of times, it was the worst of times. " * 400)
        zoo = subprocess.run([cls.program, "zoo", "gpt", *GPT, "--data", cls.path("inputs/book.txt")], capture_output=True,
                             text=True, check=True)
        cls.path("job.textproto", zoo.stdout)
        # In place of ssh: a host whose own folder hides that of the starter.
        cls.hidden = cls.path("enter_hidden", f"""#!/bin/sh
for last; do :; done
while [ "$1" != -- ]; do shift; done
exec {ENTER} -- "$2" "mount -t tmpfs none {cls.path('inputs')}; $HIDDEN_FILES $last"
""")
        os.chmod(cls.hidden, 0o755)

    def train_hidden(self, *arguments, files=""):
        os.environ["HIDDEN_FILES"] = files
        self.addCleanup(os.environ.pop, "HIDDEN_FILES", None)
        code, text = self.train("--mesh", "dp=2", "--steps", "6", "--hosts", self.two(), "--ssh", self.hidden, *arguments)
        print(text, flush=True)
        self.expect_nothing_left()
        return code, unwrapped(text)

    def test_inputs_are_sent_to_hosts_that_do_not_have_them(self):
        code, text = self.train("--mesh", "dp=2", "--steps", "3", "--checkpoint", "inputs/half.ck")
        self.assertEqual(code, 0, text)
        code, text = self.train("--mesh", "dp=2", "--steps", "6", "--save", "straight.st")
        self.assertEqual(code, 0, text)
        code, text = self.train_hidden()
        self.assertEqual(code, 66)
        self.assertRegex(text, r"W0040 at .*book.txt")
        code, text = self.train_hidden("--ship", "--resume", "inputs/half.ck", "--save", "shipped.st", "--logs", "shiplogs")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"book.txt sent to 2 hosts .*half.ck sent to 2 hosts")
        self.assertEqual(self.read("shipped.st"), self.read("straight.st"))
        left = [name for _, _, names in os.walk(self.path("shiplogs")) for name in names]
        self.assertEqual([name for name in left if "book" in name or "half" in name], [])

    def test_hosts_that_do_not_see_the_folder_of_checkpoints_send_what_they_hold(self):
        code, text = self.train_hidden("--ship", "--checkpoint", "inputs/run/", "--checkpoint-every", "2", "--keep", "1")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(os.listdir(self.path("inputs/run"))), ["latest", "step-000000006"])
        self.assertEqual(sorted(os.listdir(self.path("inputs/run/step-000000006"))),
                         ["index.pb", "rank-00000.safetensors", "rank-00001.safetensors"])
        for name, resume in (("sent.st", ("--resume", "inputs/run/")), ("straight.st", ())):
            code, text = self.train("--mesh", "dp=2", "--steps", "8", *resume, "--save", name)
            self.assertEqual(code, 0, text)
        self.assertEqual(self.read("sent.st"), self.read("straight.st"))

    def test_a_host_with_another_file_is_named(self):
        book = self.path("inputs/book.txt")
        code, text = self.train_hidden(files=f"head -c 20000 /dev/zero | tr '\\0' x > {book};")
        self.assertEqual(code, 65)
        self.assertRegex(text, rf"W0883 at {book} on host '{self.lab.hosts[0]}'")


class Levels(OnHosts):
    """Transfers go within hosts first, so that fewer bytes cross between them."""
    NUM_HOSTS = 2

    def test_devices_that_share_a_host_send_fewer_bytes_and_train_to_the_same_bits(self):
        # A sum over 2 hosts of 4 devices sends 2 T bytes between hosts on two levels, and 8 T on one. The rest of the
        # traffic is the same.
        for mesh, least in (("dp=8", 2.5), ("dp=4,tp=2", 1.5)):
            with self.subTest(mesh=mesh):
                sent = {}
                code, text = self.train("--mesh", mesh, "--steps", "8", "--save", "one.st")
                self.assertEqual(code, 0, text)
                for levels, more in (("two", ()), ("one", ("--set", "mesh.devices_per_host=1"))):
                    before = self.lab.bytes_from(0)
                    code, text = self.train("--mesh", mesh, "--steps", "8", "--save", "some.st", *more,
                                            hosts=self.two())
                    self.assertEqual(code, 0, text)
                    self.assertEqual(self.read("some.st"), self.read("one.st"), f"on {levels} levels")
                    sent[levels] = self.lab.bytes_from(0) - before
                print(f"{mesh} on 2 hosts of 4 devices: bytes sent by a host: {sent}", flush=True)
                self.assertGreater(sent["one"], least * sent["two"])

    def test_the_axes_inside_hosts_are_chosen_and_the_bits_stay_those_of_the_order_as_written(self):
        # Large batches send much along tp, and stages send least.
        for mesh, batch, chosen in (("tp=4,dp=2", 64, "tp inside hosts, dp between them"),
                                    ("dp=2,tp=2,pp=2", 8, "dp and tp inside hosts, pp between them")):
            with self.subTest(mesh=mesh):
                job = ("--mesh", mesh, "--set", f"graph.dim[batch].size={batch}", "--steps", "8")
                code, text = self.train(*job, "--save", "one.st", "--checkpoint", "one.ck")
                self.assertEqual(code, 0, text)
                self.assertNotIn("inside hosts", text)
                sent = {}
                for place in ("auto", "as-written"):
                    before = self.lab.bytes_from(0)
                    code, text = self.train(*job, "--save", "some.st", "--checkpoint", "some.ck", "--place", place,
                                            hosts=self.two())
                    self.assertEqual(code, 0, text)
                    self.assertEqual("in the order as written; --place as-written keeps that" in unwrapped(text),
                                     place == "auto", text)
                    self.assertEqual(chosen in unwrapped(text), place == "auto", text)
                    self.assertEqual(self.read("some.st"), self.read("one.st"), place)
                    self.assertEqual(self.read("some.ck"), self.read("one.ck"), place)
                    sent[place] = self.lab.bytes_from(0) - before
                print(f"{mesh} on 2 hosts of 4 devices: bytes sent by a host: {sent}", flush=True)
                self.assertGreater(sent["as-written"], 1.2 * sent["auto"])
                os.remove(self.path("one.ck"))
                os.remove(self.path("some.ck"))
        code, text = self.train("--mesh", "tp=4,dp=2", "--steps", "8", "--place", "tp,pp", hosts=self.two())
        self.assertEqual(code, 65, text)
        self.assertIn("W0106 at --place tp,pp", unwrapped(text))
        self.assertIn("each axis of the mesh tp=4,dp=2 once", unwrapped(text))
        self.expect_nothing_left()


class Drills(OnHosts):
    NUM_HOSTS = 2

    def worker_on(self, number):
        here = set(self.lab.processes_on(number))
        return next(pid for pid in self.processes("worker") if pid in here)

    def test_a_worker_that_is_killed_is_named_with_its_host(self):
        job = self.start_two()
        for pid in (*self.processes("agent"), *self.processes("worker"), *self.processes("train")):
            with open(f"/proc/{pid}/coredump_filter", encoding="ascii") as file:
                self.assertEqual(int(file.read(), 16), 0, "keys would lie in core dumps")
        os.kill(self.worker_on(1), signal.SIGKILL)
        self.expect_end(job, 137, rf"first failure: rank 1 \(pid \d+ on {self.lab.hosts[1]}\): killed by SIGKILL")

    def test_the_trace_of_a_failed_job_comes_from_the_hosts(self):
        job = self.start_two("--trace", "failed.pftrace")
        os.kill(self.worker_on(1), signal.SIGKILL)
        self.expect_end(job, 137, r"trace of the failed job written to failed.pftrace; "
                                  r"from memory that outlived the process: rank 1")
        report = subprocess.run([self.program, "trace", "report", self.path("failed.pftrace")], capture_output=True,
                                text=True, check=True)
        for rank, host in enumerate(self.lab.hosts):
            self.assertRegex(report.stdout, rf"rank {rank} · .*host {host}")
        self.assertIn("The process of rank 1 failed: killed by SIGKILL (9).", " ".join(report.stdout.split()))

    def test_a_host_whose_processes_all_die_is_named(self):
        job = self.start_two()
        for pid in self.lab.processes_on(1):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended with its parent
        self.expect_end(job, 69, rf"first failure: rank 1 \(pid \d+ on {self.lab.hosts[1]}\): lost",
                            rf"the connection to host '{self.lab.hosts[1]}' has ended",
                            rf"try: look at host '{self.lab.hosts[1]}'")

    def test_a_cut_network_is_named(self):
        job = self.start_two()
        self.lab.cut(1)
        self.addCleanup(self.lab.mend, 1)
        self.expect_end(job, 69, r"first failure: rank [01] \(pid \d+ on wh",
                            "frozen: no heartbeat|it broke|its connection")

    def test_the_end_of_the_starter_is_the_end_of_everything(self):
        job = self.start_two()
        job.kill()
        job.communicate()
        self.expect_nothing_left()

    def test_ctrl_c_ends_after_the_step_and_saves(self):
        job = self.start_two("--save", "interrupted.st")
        job.send_signal(signal.SIGINT)
        text, _ = job.communicate(timeout=LIMIT_S)
        self.assertEqual(job.returncode, 130, text)
        self.assertGreater(len(self.read("interrupted.st")), 1000)
        self.expect_nothing_left()

    def test_a_starter_that_is_stopped_and_goes_on_loses_nothing(self):
        job = self.start("--mesh", "dp=2", "--steps", "400", *QUICK, "--save", "paused.st", hosts=self.two())
        self.await_step(job)
        job.send_signal(signal.SIGSTOP)
        time.sleep(6)  # twice what a worker would wait for a starter that is gone
        job.send_signal(signal.SIGCONT)
        text, _ = job.communicate(timeout=LIMIT_S)
        self.assertEqual(job.returncode, 0, text)
        code, text = self.train("--mesh", "dp=2", "--steps", "400", "--save", "straight.st")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.read("paused.st"), self.read("straight.st"))


class Doctor(OnHosts):
    NUM_HOSTS = 2

    def doctor(self, *arguments):
        done = subprocess.run(["ip", "netns", "exec", self.lab.hub, self.program, "doctor", "--hosts", self.two(), "--ssh",
                               ENTER, *arguments], env={**os.environ, "WEIR_TEST_STARTER_ADDRESS": self.lab.address},
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        print(done.stdout, done.stderr, flush=True)
        return done.returncode, done.stdout

    def test_hosts_are_examined_and_what_is_wrong_is_named(self):
        code, text = self.doctor("--commands")
        self.assertEqual(code, 0, text)
        for host in self.lab.hosts:
            self.assertRegex(text, rf"(?m)^  {host} +\S+ .*-- {host} 'exec {self.program} agent'$")
        for address in ("10.77.0.1", "10.77.0.2", self.lab.address):
            self.assertRegex(text, rf"{address} \d+(\.\d+)? ms, \d+(\.\d+)? [KMG]iB/s")
        self.assertIn("Nothing to mend.", text)
        self.lab.cut(1)
        self.addCleanup(self.lab.mend, 1)
        code, text = self.doctor()
        self.assertEqual(code, 69, text)
        first, second = self.lab.hosts
        for wanted in (f"{first} does not reach {second} (10.77.0.2:", f"{second} does not reach {first} (10.77.0.1:",
                       f"{second} does not reach the starter ({self.lab.address}:", "NOT REACHED"):
            self.assertIn(wanted, text)
        self.expect_nothing_left()


class Calibration(OnHosts):
    NUM_HOSTS = 2

    def test_links_between_hosts_are_measured_into_the_cluster(self):
        bytes_per_second = 20_000_000
        self.lab.limit(bytes_per_second)
        done = subprocess.run(["ip", "netns", "exec", self.lab.hub, self.program, "calibrate", "job.textproto", "--steps", "1",
                               "--hosts", ",".join(f"{host}:4" for host in self.lab.hosts), "--ssh", ENTER, "-o",
                               "lab.textproto"], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, "WEIR_TEST_STARTER_ADDRESS": self.lab.address})
        print(done.stdout, done.stderr, flush=True)
        self.assertEqual(done.returncode, 0)
        cluster = self.read("lab.textproto").decode()
        between = cluster[cluster.index("between_hosts"):]
        speed = float(re.search(r"bytes_per_second: (\S+)", between)[1])
        # The bucket lets the first bytes pass at once, and the measurement counts payload alone.
        self.assertGreater(speed, 0.5 * bytes_per_second)
        self.assertLess(speed, 2 * bytes_per_second)
        self.assertGreater(float(re.search(r"latency_ns: (\S+)", between)[1]), 100)
        self.assertRegex(cluster, r"count: 2\b")
        self.assertRegex(cluster, r"devices: 4\b")
        code, text = self.train("--mesh", "dp=8", "--steps", "1", "--cluster", "lab.textproto")
        self.assertEqual(code, 0, text)
        self.expect_nothing_left()


if __name__ == "__main__":
    unittest.main()
