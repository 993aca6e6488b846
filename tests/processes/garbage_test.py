"""Tests a job while strangers send to every port that its processes listen on, from the start of the job to its end.

No process crashes or grows, and the answer stays the same.

WEIR_FRAMES sets the number of frames. This command sends a million:
WEIR_FRAMES=1000000 WEIR=bazel-bin/tools/weir python3 -m tests.processes.garbage_test
WEIR_TEST_SEED repeats the frames.
"""

import os
import random
import signal
import socket
import struct
import threading
import time
import unittest

from tests.processes import census
from tests.processes import weir_jobs

FRAMES = int(os.environ.get("WEIR_FRAMES", "50000"))
GROWTH_MAX = 16 << 20
FRAMES_OF_A_CONNECTION = 64
BYTES_MAX = 4096
STRANGERS = 4
START_UPS = 10


def frame(chance):
    """Returns random bytes, some in the form of a protocol: TLS, HTTP/2, a length and a body, UCX's magic number."""
    body = chance.randbytes(chance.randrange(1, chance.choice((16, 256, BYTES_MAX))))
    dress = chance.randrange(6)
    if dress == 0:  # a TLS record
        return struct.pack(">BHH", chance.choice((20, 21, 22, 23)), chance.choice((0x0301, 0x0303)),
                           min(len(body), 0xFFFF)) + body
    if dress == 1:
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + body
    if dress == 2:  # an HTTP/2 frame
        return len(body).to_bytes(3, "big") + body
    if dress == 3:  # a length that may be huge
        return struct.pack("<I", chance.choice((len(body), 0xFFFFFFFF, 0x7FFFFFFF, 0))) + body
    if dress == 4:
        return struct.pack("<Q", 0xCAFEBABE12345678) + body
    return body


class Scout(threading.Thread):
    """A Scout watches on which ports the processes of a job listen, until the job has ended."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self._job = job
        self.open, self.seen = [], set()

    def run(self):
        while self._job.starter.poll() is None:
            self.open = census.listeners_of(self._job.pids())
            self.seen.update(self.open)
            time.sleep(0.001)
        self.open = []


class Stranger(threading.Thread):
    """A Stranger sends frames to whatever ports are open, until the thread is told to stop.

    After a connection that the job closes, the Stranger makes another connection.
    """

    def __init__(self, seed, ports, budget):
        super().__init__(daemon=True)
        self._chance = random.Random(seed)
        self._ports, self._budget = ports, budget
        self.sent = self.connections = self.refused = 0
        self.stopped = threading.Event()

    def run(self):
        while self.sent < self._budget and not self.stopped.is_set():
            ports = self._ports()
            if not ports:
                time.sleep(0.001)
                continue
            self._visit(self._chance.choice(ports))

    def _visit(self, port):
        try:
            with socket.create_connection(port, timeout=1) as peer:
                self.connections += 1
                for _ in range(self._chance.randrange(1, FRAMES_OF_A_CONNECTION)):
                    peer.sendall(frame(self._chance))
                    self.sent += 1
        except OSError:  # the job hung up, as it should
            self.refused += 1


class Garbage(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.seed = weir_jobs.seed()
        print(f"WEIR_TEST_SEED={self.seed}", flush=True)

    def strangers(self, ports, budget):
        found = [Stranger(f"{self.seed} {number}", ports, budget // STRANGERS) for number in range(STRANGERS)]
        for stranger in found:
            stranger.start()
        return found

    def test_garbage_at_every_port_of_a_running_job_changes_nothing(self):
        self.write_job("--steps", "1000000", "--min-lr", "0.003")
        job = self.place.start("--mesh", "dp=2,tp=2", "--processes", "4", "--transport", "tcp", "--save", "many.st",
                               "--metrics", "metrics.jsonl")
        job.wait_for_step()
        pids = [job.starter.pid, *job.wait_for_workers(4).values()]
        ports = census.listeners_of(pids)
        self.assertTrue(ports, "the starter listens for its workers")
        for address, _ in ports:
            self.assertTrue(address.startswith("127.") or address == "::1",
                            f"{address} can be reached from other machines")
        # The test waits until the job has grown to its size by itself.
        weir_jobs.until("a few steps", lambda: self.place.metrics("metrics.jsonl")[-1]["step"] > 50)
        before = {pid: census.resident_bytes(pid) for pid in pids}
        peaks = dict(before)
        strangers = self.strangers(lambda: ports, FRAMES)
        while any(stranger.is_alive() for stranger in strangers):
            self.assertIsNone(job.starter.poll(), job.errors())
            peaks = {pid: max(peak, census.resident_bytes(pid)) for pid, peak in peaks.items()}
            time.sleep(0.02)
        growth = {pid: peaks[pid] - before[pid] for pid in pids}
        job.starter.send_signal(signal.SIGTERM)
        ended = job.wait()
        print(f"{sum(s.sent for s in strangers)} frames in {sum(s.connections for s in strangers)} connections "
              f"to {len(ports)} ports; memory grew by {max(growth.values()) / 2**20:.2f} MiB at most", flush=True)
        self.assertEqual(ended.code, 130, ended.err)
        self.assertLess(max(growth.values()), GROWTH_MAX)
        steps = self.place.metrics("metrics.jsonl")[-1]["step"]
        self.place.train("--mesh", "dp=2,tp=2", "--steps", str(steps), "--save", "one.st")
        self.assertTrue(self.place.bytes_of("many.st") == self.place.bytes_of("one.st"))

    def test_garbage_while_a_job_starts_keeps_nobody_out(self):
        self.write_job("--steps", "10")
        self.place.train("--mesh", "dp=2,tp=2", "--save", "one.st")
        met, num_ports = 0, []
        for number in range(START_UPS):
            with self.subTest(number=number):
                job = self.place.start("--mesh", "dp=2,tp=2", "--processes", "4", "--transport", "tcp",
                                       "--save", "many.st")
                scout = Scout(job)
                scout.start()
                strangers = self.strangers(lambda scout=scout: scout.open, 1 << 30)
                try:
                    ended = job.wait(120)
                finally:
                    for stranger in strangers:
                        stranger.stopped.set()
                for thread in (scout, *strangers):
                    thread.join()
                self.assertEqual(ended.code, 0, ended.err)
                self.assertTrue(self.place.bytes_of("many.st") == self.place.bytes_of("one.st"))
                met += sum(stranger.sent for stranger in strangers)
                num_ports.append(len(scout.seen))
        print(f"{START_UPS} jobs, with so many ports: {num_ports}, met {met} frames while they started and ran",
              flush=True)
        self.assertGreater(met, 0)
        # The ports of the workers are open only until all workers have joined.
        self.assertGreater(max(num_ports), 1, "not a port of the workers was met")


if __name__ == "__main__":
    unittest.main()
