"""Makes hosts of network namespaces: a hub, in which the starter runs, and hosts that only the hub's bridge connects.

Each host has interfaces, processes, mounts and shared memory of its own (tests/hosts/enter_namespace). All names hold
the id of this process, so that labs do not meet. A lab needs root.
"""

import json
import os
import shutil
import socket
import subprocess
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
NOBODY = "02:00:00:00:00:01"  # an Ethernet address that no interface has
NAMES = "/etc/netns"  # of which `ip netns exec NAME` lays the folder NAME over /etc
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
        self._tell_names()
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

    def _tell_names(self):
        """Lets everybody in the lab know the hosts by their names."""
        lines = ["127.0.0.1 localhost", f"{self.address} {self.hub} {socket.gethostname()}",
                 *(f"10.77.0.{i + 1} {host}" for i, host in enumerate(self.hosts))]
        for name in (*self.hosts, self.hub):
            os.makedirs(os.path.join(NAMES, name), exist_ok=True)
            with open(os.path.join(NAMES, name, "hosts"), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def __exit__(self, *_):
        for name in (*self.hosts, self.hub):
            shutil.rmtree(os.path.join(NAMES, name), ignore_errors=True)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def in_hub(self, *words):
        run("ip", "netns", "exec", self.hub, *words)

    def in_host(self, number, *words):
        run("ip", "netns", "exec", self.hosts[number], *words)

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

    def isolate(self):
        """Lets no host reach another one, silently, while all reach the hub; join() ends that."""
        self._set_isolated("on")

    def join(self):
        self._set_isolated("off")

    def _set_isolated(self, value):
        for inner in self._inner:
            self.in_hub("ip", "link", "set", "dev", inner, "type", "bridge_slave", "isolated", value)

    def deafen(self):
        """Loses, silently, what the first host sends to the second, and nothing else; hear() ends that."""
        self.in_host(0, "ip", "neigh", "replace", "10.77.0.2", "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def hear(self):
        subprocess.run(["ip", "netns", "exec", self.hosts[0], "ip", "neigh", "delete", "10.77.0.2", "dev", "eth0"],
                       capture_output=True, check=False)

    def close_ports(self, number, address):
        """Loses, silently, what a host sends over TCP to the ports of an address beyond 1023, as a firewall does."""
        self.in_host(number, "ip", "neigh", "replace", "10.77.0.253", "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        self.in_host(number, "ip", "route", "replace", "default", "via", "10.77.0.253", "dev", "eth0", "table", "100")
        self.in_host(number, "ip", "rule", "add", "to", address, "ipproto", "tcp", "dport", "1024-65534", "lookup", "100",
                     "priority", "10")

    def open_ports(self, number):
        self.in_host(number, "ip", "rule", "delete", "priority", "10")

    def bytes_from(self, number):
        """Returns the bytes that a host has sent so far."""
        shown = subprocess.run(["ip", "netns", "exec", self.hub, "ip", "-json", "-stats", "link", "show", "dev",
                                self._inner[number]], capture_output=True, text=True, check=True)
        return json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"]

    def processes_on(self, number):
        """Returns the pids, as this process sees them, of what runs on a host."""
        found = subprocess.run(["ip", "netns", "pids", self.hosts[number]], capture_output=True, text=True, check=True)
        return [int(word) for word in found.stdout.split()]
