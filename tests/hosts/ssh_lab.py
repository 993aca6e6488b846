"""Runs an sshd at each of two addresses of the loopback interface, with keys that exist for one test alone."""

import os
import shutil
import subprocess
import time
import unittest

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
HOSTS = ("127.0.0.2", "127.0.0.3")
LOOK_S = 0.02


class SshLab:
    def __init__(self, folder):
        self.folder = folder
        self.hosts = HOSTS
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
            self._servers = [self._start_server(host, port) for host in HOSTS]
            if all(self._listens(host, server) for host, server in zip(HOSTS, self._servers)):
                return port
            self._end_servers()
        raise AssertionError("no free port")

    def _start_server(self, host, port):
        with open(self._path(f"sshd-{host}.log"), "wb") as log:
            return subprocess.Popen([
                SSHD, "-D", "-e", "-f", "/dev/null", "-o", f"ListenAddress={host}:{port}", "-o", "PidFile=none",
                "-o", f"HostKey={self._path('host_key')}", "-o", f"AuthorizedKeysFile={self._path('authorized_keys')}",
                "-o", "PasswordAuthentication=no", "-o", "StrictModes=no", "-o", "UsePAM=no"
            ], stderr=log)

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

    def server(self, number):
        """Returns the pid of the sshd of a host. Its children serve connections."""
        return self._servers[number].pid
