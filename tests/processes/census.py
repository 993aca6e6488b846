"""Lists what the processes of a job hold on this machine, and what remains when they are gone.

The module reads /proc alone. A thing counts as left behind only if it certainly belongs to the job, because others may
run on the same machine.
"""

import dataclasses
import os
import re
import socket
import struct

LISTENING = "0A"
# TIME_WAIT is the state of a connection that only the kernel remembers. No process holds such a connection.
TIME_WAIT = "06"


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # the process has ended since
        return b""


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _state_and_parent(pid):
    """Returns the state and the parent of a process, such as ('S', 1), or ('', 0) if there is no such process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1])) if fields else ("", 0)


def is_running(pid):
    """Returns whether a process runs. A zombie does not run, since it holds nothing but its exit code."""
    return _state_and_parent(pid)[0] not in ("", "Z", "X")


def is_stopped(pid):
    """Returns whether a signal has stopped the process (SIGSTOP)."""
    return _state_and_parent(pid)[0] == "T"


_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def children_of(parent):
    if not _KERNEL_LISTS_CHILDREN:
        return [pid for pid in all_pids() if _state_and_parent(pid)[1] == parent and is_running(pid)]
    try:
        threads = os.listdir(f"/proc/{parent}/task")
    except OSError:
        return []
    pids = [int(word) for thread in threads for word in _read(f"/proc/{parent}/task/{thread}/children").split()]
    return [pid for pid in pids if is_running(pid)]


def parent_of(pid):
    return _state_and_parent(pid)[1]


def descendants_of(ancestor):
    """Returns the pids of the children of a process, of their children, and so on."""
    found = children_of(ancestor)
    for pid in found:
        found += children_of(pid)
    return found


def variable_of(pid, name):
    """Returns a variable of the environment with which a process has begun, or an empty text."""
    for word in _read(f"/proc/{pid}/environ").decode("utf-8", "replace").split("\0"):
        if word.startswith(f"{name}="):
            return word[len(name) + 1:]
    return ""


def arguments_of(pid):
    return _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")[:-1]


def processes_of(program, marker):
    """Returns the pids of the processes that run the file `program` or have `marker` in their environment."""
    found = []
    for pid in all_pids():
        try:
            runs = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)") == program
        except OSError:
            runs = False
        if (runs or marker.encode() in _read(f"/proc/{pid}/environ")) and is_running(pid):
            found.append(pid)
    return found


@dataclasses.dataclass(frozen=True)
class TcpSocket:
    address: str
    port: int
    state: str
    inode: int
    peer_port: int


def tcp_sockets():
    sockets = []
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        for line in _read(path).decode().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            words = struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))
            packed = struct.pack(f"<{len(words)}I", *words)
            sockets.append(TcpSocket(socket.inet_ntop(family, packed), int(port, 16), fields[3], int(fields[9]),
                                     int(fields[2].split(":")[1], 16)))
    return sockets


def _unix_names():
    """Returns {inode: name} of the local sockets that have a name."""
    rows = [line.split(None, 7) for line in _read("/proc/net/unix").decode("utf-8", "replace").splitlines()[1:]]
    return {int(row[6]): row[7] for row in rows if len(row) == 8}


def _inodes_of(pids):
    inodes = set()
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                continue
            if match:
                inodes.add(int(match.group(1)))
    return inodes


def listeners_of(pids):
    """Returns [(address, port)] of the places where these processes listen."""
    inodes = _inodes_of(pids)
    return sorted({(s.address, s.port) for s in tcp_sockets() if s.state == LISTENING and s.inode in inodes})


@dataclasses.dataclass
class Sockets:
    """Sockets collects the sockets, listening ports and names of local sockets that processes of the job had."""

    inodes: set = dataclasses.field(default_factory=set)
    ports: set = dataclasses.field(default_factory=set)
    names: set = dataclasses.field(default_factory=set)

    def see(self, pids):
        inodes = _inodes_of(pids)
        self.inodes |= inodes
        self.ports |= {s.port for s in tcp_sockets() if s.inode in inodes and s.state == LISTENING}
        self.names |= {name for inode, name in _unix_names().items() if inode in inodes}

    def leftovers(self):
        # The system may give a port that is free again to any other program, whose sockets are others. A connection
        # that no process holds has no inode.
        left = [f"TCP port {s.port}, state {s.state}" for s in tcp_sockets()
                if s.state != TIME_WAIT and s.port in self.ports and (s.inode == 0 or s.inode in self.inodes)]
        return left + [f"local socket {name}" for name in sorted(self.names & set(_unix_names().values()))]


def _system_v_segments():
    """Returns {id: pid of the maker}."""
    rows = [line.split() for line in _read("/proc/sysvipc/shm").decode().splitlines()[1:]]
    return {int(row[1]): int(row[4]) for row in rows}


def _shared_files():
    try:
        return set(os.listdir("/dev/shm"))
    except OSError:
        return set()


def _opened_shared_files():
    """Returns the names in /dev/shm that some process has open or mapped."""
    found = set()
    for pid in all_pids():
        found |= set(re.findall(r"/dev/shm/(\S+)", _read(f"/proc/{pid}/maps").decode("utf-8", "replace")))
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("/dev/shm/"):
                    found.add(target.removeprefix("/dev/shm/"))
        except OSError:
            continue
    return found


class SharedMemory:
    """SharedMemory is the set of segments of this machine at one moment, to be compared with a later moment."""

    def __init__(self):
        self.segments = _system_v_segments()
        self.files = _shared_files()

    def leftovers(self):
        """Returns the segments that have been made since that moment and that no process is left to remove."""
        left = [f"System V segment {segment} of process {maker}" for segment, maker in _system_v_segments().items()
                if segment not in self.segments and not is_running(maker)]
        new = _shared_files() - self.files
        if new:
            new = (new - _opened_shared_files()) & _shared_files()
        return left + [f"/dev/shm/{name}" for name in sorted(new)]


def resident_bytes(pid):
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def cpu_seconds(pid):
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0
