"""Tests that what is wrong with the hosts of a job is told with its place, what is expected and what to try, before anything
is trained, and leaves nothing behind."""

import os
import socket
import struct
import subprocess
import unittest

from tests.hosts.host_jobs import GPT, LIMIT_S, unwrapped
from tests.hosts.namespace_jobs import OnHosts
from tests.hosts.network_lab import ENTER

CLOCK = os.path.abspath(os.path.join(os.path.dirname(__file__), "shifted_clock.so"))
BUILD_ID = struct.pack("<III", 4, 20, 3) + b"GNU\0"  # the head of the note that holds it
OPEN_PORTS = r"Try: open all ports between the hosts \(a firewall drops or refuses\)"


class WrongUse(OnHosts):
    NUM_HOSTS = 2

    def shell(self, second):
        """Makes a program in place of ssh that runs the command `second` on the second host before the agent."""
        path = self.path(f"shell{len(os.listdir(self.folder))}", f"""#!/bin/bash
for last; do :; done
while [ "$1" != -- ]; do shift; done
if [ "$2" = {self.lab.hosts[1]} ]; then last="{second} $last"; fi
exec {ENTER} -- "$2" "$last"
""")
        os.chmod(path, 0o755)
        return path

    def refused(self, code, wanted, *arguments, mesh="dp=2", hosts=None, ssh=ENTER, job="job.textproto", words=None):
        """Runs a job that must end with the code and say what is wanted, and leave nothing."""
        listed = ("--hostfile", hosts) if hosts == "hosts.txt" else ("--hosts", hosts or self.two())
        words = words or ("train", job, "--mesh", mesh, "--steps", "2", *listed, "--ssh", ssh)
        done = subprocess.run(["ip", "netns", "exec", self.lab.hub, self.program, *words, *arguments], cwd=self.folder,
                              env={**os.environ, "WEIR_TEST_STARTER_ADDRESS": self.lab.address}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        text = unwrapped(done.stdout + done.stderr)
        print(done.stdout, done.stderr, flush=True)
        self.assertRegex(text, wanted.format(first=self.lab.hosts[0], second=self.lab.hosts[1]))
        self.assertEqual(done.returncode, code, text)
        self.assertNotIn("This is a fault of weir", text)
        self.expect_nothing_left()

    def test_lists_of_hosts(self):
        first = self.lab.hosts[0]
        for hosts, arguments, code, wanted in (
                (f"{first},nowhere", (), 69, "W0872 at host 'nowhere'.*Could not resolve hostname nowhere.* Try: "),
                (f"{first},{first}", (), 65, r"W0871 .*expected each host once.*Try: one entry with slots .*{first}:2"),
                (f"{first}:1", ("--processes", "2"), 65, "W0876 .*expected slots for 2 processes; found 1 on 1 host.*Try: more"),
                (self.two(), ("--processes", "3"), 65, "W0090 at processes: expected 1 to 2, as many as the mesh has devices"),
                (f"{first},b;c", (), 65, "W0870 at --hosts, entry 2.*Try: a name"),
                (self.two(), ("--weir", "/no/such/weir"), 69, "W0872 .*/no/such/weir"),
                (self.two(), ("--addr", "10.99.0.1"), 69, "W0875 at --addr.*Try: --addr ADDRESS"),
                (self.two(), ("--addr", "127.0.0.1"), 69, "W0875 at host .*Connection refused"),
        ):
            with self.subTest(hosts=hosts, arguments=arguments):
                self.refused(code, wanted, *arguments, hosts=hosts)

    def test_files_of_hosts(self):
        first, second = self.lab.hosts
        for text, wanted in (
                (f"{first} slots=x", "line 1: expected slots from 1 to 65536; found 'x'. Try: .*`host slots=2`"),
                (f"{first}\n{second} slots=0", "line 2: expected slots from 1 to 65536; found '0'. Try: "),
                (f"{first} slots = 2", "line 1: .*without spaces"),
                (f"{first} {second}", "line 1: expected a host, and perhaps slots=N; found '{second}'. Try: one host on a line"),
                (f"{first},{second}", "line 1: expected one host; found '{first},{second}'. Try: one host on a line"),
                (f"{first} slots=1 slots=2", "line 1: expected the slots of a host once; found 'slots=2' besides 1. Try: "),
                (f"{first}\n\n{first}", "line 3: expected each host once; found '{first}' again, which is also .*line 1"),
                ("n[3-1]", r"line 1: expected numbers and ascending ranges.*Try: n\[1-4,7\]"),
                ("-oProxyCommand=x", "line 1: expected a host; found '-oProxyCommand=x'. Try: a name"),
                ("# nothing", "expected a host; found no line with one. Try: a name"),
        ):
            with self.subTest(text=text):
                self.path("hosts.txt", text + "\n")
                self.refused(65, "W087[01] at hosts.txt,? ?" + wanted if "nothing" not in text else wanted, hosts="hosts.txt")

    def test_a_mesh_larger_than_the_slots_gives_a_process_several_devices(self):
        self.refused(0, "4 devices .* in 2 processes", mesh="dp=4", hosts=",".join(f"{host}:1" for host in self.lab.hosts))

    def test_another_build_on_a_host(self):
        with open(self.program, "rb") as file:
            content = bytearray(file.read())
        content[content.index(BUILD_ID) + len(BUILD_ID)] ^= 1
        other = self.path("other")
        with open(other, "wb") as file:
            file.write(content)
        os.chmod(other, 0o755)
        self.refused(69, "W0873 at host '{second}': expected build .*; found build .*Try: the same build of Weir on every host",
                     ssh=self.shell(f"mount --bind {other} {self.program};"))

    def test_a_firewall_before_the_starter(self):
        self.lab.close_ports(1, self.lab.address)
        self.addCleanup(self.lab.open_ports, 1)
        self.refused(69, r"W0875 at host '{second}': .*10\.77\.0\.254:\d+ no answer within 2\.0 s\. Try: open this machine's "
                     r"ports to the hosts \(a firewall drops or refuses\)")

    def test_a_firewall_before_a_host(self):
        self.lab.close_ports(1, "10.77.0.1")
        self.addCleanup(self.lab.open_ports, 1)
        self.refused(69, r"W0886 at host '{second}': expected a way to every other host of the job; found {first} "
                     r"\(10\.77\.0\.1:\d+\) no answer within 2\.0 s\. " + OPEN_PORTS)

    def test_an_interface_that_a_host_lacks(self):
        self.refused(65, r"W0887 at --iface ib0: expected an interface of that name, which is up, on every host of the job; found "
                     r"{first}, {second}: lo, eth0\. Try: the name of one that every host has", "--iface", "ib0")
        self.refused(69, r"{first} has no interface ib0 that is up \(it has lo, eth0\).*{second} has no interface ib0",
                     words=("doctor", "--hosts", self.two(), "--ssh", ENTER, "--iface", "ib0"))
        self.refused(0, "Nothing to mend", words=("doctor", "--hosts", self.two(), "--ssh", ENTER, "--iface", "eth0"))

    def test_a_firewall_before_the_interface_of_a_host(self):
        self.lab.close_ports(1, "10.77.0.1")
        self.addCleanup(self.lab.open_ports, 1)
        self.refused(69, r"W0886 at host '{second}': .*found {first} \(10\.77\.0\.1:\d+\) no answer within 2\.0 s\. "
                     + OPEN_PORTS, "--iface", "eth0")

    def test_hosts_that_do_not_reach_each_other(self):
        self.lab.isolate()
        self.addCleanup(self.lab.join)
        self.refused(69, r"W0886 at host '{first}': .*found {second} \(10\.77\.0\.2:\d+\) no answer.*W0886 at host '{second}'")

    def test_a_clock_that_is_off_by_a_minute(self):
        for offset_s, shown in ((60, r"\+60\.\d s"), (-60, r"-(60\.0|59\.9) s")):
            with self.subTest(offset_s=offset_s):
                ssh = self.shell(f"export LD_PRELOAD={CLOCK} CLOCK_OFFSET_S={offset_s};")
                self.refused(69, r"{second}'s clock is off \(" + shown + r"\): let NTP set it",
                             words=("doctor", "--hosts", self.two(), "--ssh", ssh))
                self.refused(0, "2 steps, loss", ssh=ssh)  # clocks are measured, and certificates allow for more

    def test_a_folder_that_a_host_does_not_have(self):
        os.makedirs(self.path("outer/work"), exist_ok=True)
        ssh = self.shell(f"mount -t tmpfs none {self.path('outer')}; cd /;")
        done = subprocess.run(["ip", "netns", "exec", self.lab.hub, self.program, "launch", "--hosts", self.two(), "--ssh", ssh,
                               "pwd"], cwd=self.path("outer/work"), capture_output=True, text=True, timeout=LIMIT_S, check=True,
                              env={**os.environ, "WEIR_TEST_STARTER_ADDRESS": self.lab.address})
        second = self.lab.hosts[1]
        self.assertIn(f"[{second}] this host has no folder {self.path('outer/work')}, so relative paths of the job count from /\n",
                      done.stdout + done.stderr)
        self.assertIn("[rank 1] /\n", done.stdout)


    def full(self, inodes):
        """Makes a shell whose second host has no room where the logs lie, or room for few files alone."""
        logs = self.path("logs")
        os.makedirs(logs, exist_ok=True)
        return self.shell(f"mount -t tmpfs -o size=16k,nr_inodes={inodes} none {logs}; cat /dev/zero > {logs}/filler 2>/dev/null;")

    def test_a_full_disk_loses_output_and_says_so(self):
        self.refused(0, r"\[rank 1\] log file: No space left on device; output is lost from here on.*\[rank 1\] hello",
                     words=("launch", "--logs", "logs", "--hosts", self.two(), "--ssh", self.full(20), "--", "echo", "hello"))

    def test_a_disk_without_room_for_a_log(self):
        self.refused(69, r"W0874 at host '{second}': W0092 at .*/logs/.*: expected a folder that can be made; found No space left "
                     r"on device. Try: another folder for the logs", "--logs", "logs", ssh=self.full(2))

    def test_a_disk_without_room_for_what_is_shipped(self):
        book = self.path("book.txt", "It was the best of times, it was the worst of times. " * 2000)
        zoo = subprocess.run([self.program, "zoo", "gpt", *GPT, "--data", book], capture_output=True, text=True, check=True)
        self.path("book.textproto", zoo.stdout)
        self.refused(69, r"W0881 at .*/shipped/{second}/0-book.txt on host '{second}': .*No space left on device.*Try: ",
                     "--ship", "--logs", "logs", ssh=self.full(20), job="book.textproto")
        left = [name for _, _, names in os.walk(self.path("logs")) for name in names if "book" in name]
        self.assertEqual(left, [], "copies on the other host")

    def test_a_port_that_is_taken(self):
        with socket.create_server(("", 0)) as taken:
            port = taken.getsockname()[1]
            environment = {"JOB_COMPLETION_INDEX": "0", "WEIR_HOSTS": "127.0.0.1,127.0.0.2", "WEIR_SECRET_FILE":
                           self.path("secret", "a secret of sixteen bytes")}
            done = subprocess.run([self.program, "train", "job.textproto", "--port", str(port)], cwd=self.folder, check=False,
                                  env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT_S)
        text = unwrapped(done.stderr)
        print(done.stderr, flush=True)
        self.assertRegex(text, rf"W0878 at the starter: expected an address to meet the agents at; found .*:{port}.*Address "
                         r"already in use.* Try: .*--port")
        self.assertEqual(done.returncode, 69, text)


if __name__ == "__main__":
    unittest.main()
