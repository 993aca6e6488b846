"""Makes hosts of network namespaces: a hub, in which the starter runs, and hosts that only the hub's bridge connects.

Each host has interfaces, processes, mounts and shared memory of its own (tests/hosts/enter_namespace). All names hold
the id of this process, so that labs do not meet. A lab needs root.
"""

import json
import os
import subprocess
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
ENTER = os.path.join(FOLDER, "enter_namespace")


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class NetworkLab:
    def __init__(self, num_hosts):
        tag = f"{os.getpid() % 100000}"
        self.hub = f"whub{tag}"
        self.hosts = [f"wh{i + 1}-{tag}" for i in range(num_hosts)]
        self.address = "10.77.0.254"
        self._inner = [f"wv{i + 1}" for i in range(num_hosts)]

    def __enter__(self):
        try:
            self._make()
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.__exit__()
            why = getattr(error, "stderr", "") or str(error)
            raise unittest.SkipTest(f"NOT TESTED: this machine makes no network namespaces: {why.strip()}")
        return self

    def _make(self):
        run("ip", "netns", "add", self.hub)
        self.in_hub("ip", "link", "set", "lo", "up")
        self.in_hub("ip", "link", "add", "bridge0", "type", "bridge")
        self.in_hub("ip", "address", "add", f"{self.address}/24", "dev", "bridge0")
        self.in_hub("ip", "link", "set", "bridge0", "up")
        for i, (host, inner) in enumerate(zip(self.hosts, self._inner)):
            run("ip", "netns", "add", host)
            self.in_hub("ip", "link", "add", inner, "type", "veth", "peer", "name", "eth0", "netns", host)
            self.in_hub("ip", "link", "set", inner, "master", "bridge0", "up")
            inside = ("ip", "netns", "exec", host, "ip")
            run(*inside, "link", "set", "lo", "up")
            run(*inside, "address", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for name in (*self.hosts, self.hub):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def in_hub(self, *words):
        run("ip", "netns", "exec", self.hub, *words)

    def limit(self, bytes_per_second):
        """Limits what each host sends."""
        bucket = ("tbf", "rate", f"{bytes_per_second * 8}bit", "burst", "64kb", "latency", "200ms")
        try:
            for host in self.hosts:
                run("ip", "netns", "exec", host, "/sbin/tc", "qdisc", "replace", "dev", "eth0", "root", *bucket)
        except subprocess.CalledProcessError as error:
            raise unittest.SkipTest(f"NOT TESTED: this machine has no token buckets: {error.stderr.strip()}")

    def cut(self, number):
        """Takes the cable of a host away; mend() puts it back."""
        self.in_hub("ip", "link", "set", self._inner[number], "down")

    def mend(self, number):
        self.in_hub("ip", "link", "set", self._inner[number], "up")

    def bytes_from(self, number):
        """Returns the bytes that a host has sent so far."""
        shown = subprocess.run(["ip", "netns", "exec", self.hub, "ip", "-json", "-stats", "link", "show", "dev",
                                self._inner[number]], capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"]

    def processes_on(self, number):
        """Returns the pids, as this process sees them, of what runs on a host."""
        found = subprocess.run(["ip", "netns", "pids", self.hosts[number]], capture_output=True, text=True, check=True)
        return [int(word) for word in found.stdout.split()]
