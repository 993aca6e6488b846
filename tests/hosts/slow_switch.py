"""A switch that connects network namespaces slowly and loses frames: `slow_switch.py DELAY_MS LOSS SEED NAMESPACE...`.

It stands in for `tc qdisc ... netem`, which many kernels lack. Each namespace gets a TAP device eth0, and this process
carries the frames between the devices: each one DELAY_MS later, and the share LOSS of them never. A line on standard
output says that the devices are there; the devices go with the process.
"""

import collections
import ctypes
import fcntl
import os
import random
import selectors
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP_WITHOUT_HEADER = 0x0002 | 0x1000
CLONE_NEWNET = 0x40000000
FRAME_BYTES_MAX = 65536


def tap_in(namespace):
    """Returns the descriptor of a new device eth0 of a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(other, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP_WITHOUT_HEADER))
        return tap
    finally:
        libc.setns(own, CLONE_NEWNET)
        os.close(own)
        os.close(other)


def carry(taps, delay_s, loss, draw):
    waiting = collections.deque()  # (when, to, frame): all are delayed equally, so the first comes first
    ports = {}  # the device behind which an address is
    selector = selectors.DefaultSelector()
    for tap in taps:
        selector.register(tap, selectors.EVENT_READ)
    while True:
        limit = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in selector.select(limit):
            try:
                while True:
                    frame = os.read(key.fd, FRAME_BYTES_MAX)
                    ports[frame[6:12]] = key.fd
                    if draw() >= loss:
                        waiting.append((time.monotonic() + delay_s, key.fd, frame))
            except BlockingIOError:
                pass
        while waiting and waiting[0][0] <= time.monotonic():
            _, source, frame = waiting.popleft()
            port = ports.get(frame[0:6])
            for tap in taps if port is None else [port]:
                if tap != source:
                    try:
                        os.write(tap, frame)
                    except OSError:
                        pass  # the device is down, or full: a lost frame


def main():
    delay_ms, loss, seed, *namespaces = sys.argv[1:]
    taps = [tap_in(namespace) for namespace in namespaces]
    print("ready", flush=True)
    carry(taps, float(delay_ms) * 1e-3, float(loss), random.Random(int(seed)).random)


if __name__ == "__main__":
    main()
