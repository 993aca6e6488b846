"""Tests that reading a file takes at most 4 times its size plus 64 MiB, whatever the file contains.

The test measures the largest memory of `weir` on files that are made to need much memory.
"""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
WEIR = os.path.abspath(os.environ.get("WEIR", "tools/weir"))
MIB = 1 << 20
TIMES, SPARE = 4, 64 * MIB
TIMEOUT_S = 120
# The launcher is small, because the largest memory of a program includes that of the process that became the program.
LAUNCHER = """
import json, os, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, usage.ru_maxrss * 1024, usage.ru_utime]))
"""


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(number, content):
    """Returns a field of a protobuf message that holds a message or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


class MemoryTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with open(os.path.join(FOLDER, "good.textproto"), encoding="utf-8") as file:
            self.good = self.write("good.textproto", file.read().encode())

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def check(self, *words, size, refusal=None):
        """Runs weir and checks its largest memory. `size` is the size of the input that weir reads."""
        ended = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, WEIR, *words], cwd=self.folder.name,
                               capture_output=True, timeout=TIMEOUT_S, check=True)
        code, peak, seconds = json.loads(ended.stdout.splitlines()[-1])
        text = ended.stderr.decode()
        print(f"{self.id().rsplit('.', 1)[1]}: {size / MIB:.1f} MiB read, {peak / MIB:.0f} MiB taken, "
              f"{seconds:.1f} s, code {code}")
        self.assertLess(peak, TIMES * size + SPARE, text[:500])
        self.assertIn(code, (0, 65, 66), text[:500])
        if refusal is not None:
            self.assertIn(refusal, " ".join(text.split()))

    def check_job(self, content, refusal):
        self.check("check", self.write("job.textproto", content), size=len(content), refusal=refusal)

    def test_a_job_of_empty_nodes(self):
        self.check_job(b"graph { function { " + b"node {} " * (2 * MIB) + b"} }", "W0811")

    def test_a_job_of_as_many_empty_nodes_as_are_read(self):
        self.check_job(b"graph { function { " + b"node{}" * 99_000 + b"} }", "W04")

    def test_a_job_of_as_many_empty_functions_as_are_read(self):
        self.check_job(b"graph { " + b"function{}" * 99_000 + b"}", "W04")

    def test_a_job_of_empty_dimensions(self):
        self.check_job(b"graph { " + b"dim {} " * (2 * MIB) + b"}", "W0811")

    def test_a_job_of_empty_strings_in_a_list(self):
        self.check_job(b"graph { function { output: [" + b'"",' * (5 * MIB) + b'""] } }', "W0811")

    def test_a_job_of_numbers_in_a_list(self):
        self.check_job(b"graph { function { node { attr { value { ints { values: [" + b"1," * (8 * MIB)
                       + b"1] } } } } } }", "W0811")

    def test_a_job_of_one_string(self):
        self.check_job(b'name: "' + b"x" * (60 * MIB) + b'"', "W0812")

    def test_a_job_of_strings_that_follow_one_another(self):
        self.check_job(b"name: " + (b'"' + b"x" * 60_000 + b'" ') * 900, "W0812")

    def test_a_job_that_is_one_comment(self):
        self.check_job(b"# " + b"x" * (60 * MIB), "W0410")

    def test_a_job_of_closing_braces(self):
        self.check_job(b"}" * (30 * MIB), "W0002")

    def check_set(self, assignments, refusal):
        words = [word for assignment in assignments for word in ("--set", assignment)]
        self.check("check", self.good, *words, size=sum(map(len, assignments)), refusal=refusal)

    def test_what_set_says(self):
        self.check_set(["graph.function=" + "node{}" * 10_000] * 17, "W0811")

    def test_as_much_as_set_may_say(self):
        self.check_set(["graph.function=" + "node{}" * 9_900] * 10, "W04")

    def test_a_cluster_of_empty_devices(self):
        content = b"device {} " * (2 * MIB)
        cluster = self.write("cluster.textproto", content)
        self.check("sim", self.good, "--cluster", cluster, size=len(content), refusal="W0811")
        self.check("plan", self.good, "--cluster", cluster, size=len(content), refusal="W0811")

    def weights(self, header):
        content = struct.pack("<Q", len(header)) + header
        self.write("w.safetensors", content)
        return len(content)

    def test_weights_of_many_tensors(self):
        entries = b",".join(b'"%d":{"dtype":"F32","shape":[%s],"data_offsets":[0,0]}' % (i, b",".join([b"0"] * 16))
                            for i in range(200_000))
        size = self.weights(b"{" + entries + b"}")
        self.check("eval", self.good, "--init", "w.safetensors", size=size, refusal="more than 100000 tensors")

    def test_weights_of_as_many_tensors_as_are_read(self):
        for shape in (b"0", b",".join([b"0"] * 16)):
            entries = b",".join(b'"%d":{"dtype":"F32","shape":[%s],"data_offsets":[0,0]}' % (i, shape)
                                for i in range(99_999))
            size = self.weights(b"{" + entries + b"}")
            self.check("train", self.good, "--init", "w.safetensors", size=size)

    def test_weights_of_much_metadata(self):
        size = self.weights(json.dumps({"__metadata__": {str(i): "" for i in range(300_000)}},
                                       separators=(",", ":")).encode())
        self.check("train", self.good, "--init", "w.safetensors", size=size,
                   refusal="more than 200000 entries of metadata")
        size = self.weights(json.dumps({"__metadata__": {"a": "x" * (60 * MIB)}}).encode())
        self.check("train", self.good, "--init", "w.safetensors", size=size, refusal="metadata of more than")

    def test_images_that_unpack_to_much(self):
        images = gzip.compress(struct.pack(">IIII", 0x803, 50_000, 28, 28) + bytes(50_000 * 784), 9, mtime=0)
        self.write("images.gz", images)
        self.write("labels", struct.pack(">II", 0x801, 16) + bytes(16))
        self.check("check", self.good, "--set", 'data={idx{images:"images.gz" labels:"labels"}}', size=len(images),
                   refusal="W0057")

    def check_trace(self, packets, refusal):
        content = b"".join(message(1, packet) for packet in packets)
        self.check("trace", "report", self.write("t.pftrace", content), size=len(content), refusal=refusal)

    def test_a_trace_with_one_long_name_of_many_slices(self):
        name = message(12, message(2, b"\x08\x01" + message(2, b"n" * MIB)))
        begin, end = message(11, b"\x48\x01\x50\x01\x58\x07"), message(11, b"\x48\x02\x58\x07")
        self.check_trace([name] + [begin, end] * 20_000, "no description of a job")

    def test_a_trace_with_one_packet_of_many_parts(self):
        self.check_trace([message(11, b"\x48\x01" + b"\x22\x00" * (7 * MIB))], "too many parts")
        self.check_trace([message(20041, b"\x1a\x00" * (7 * MIB))], "too many parts")

    def test_a_trace_of_many_sequences(self):
        self.check_trace((b"\x50" + varint(i) for i in range(MIB)), "take more than")


if __name__ == "__main__":
    sys.exit(unittest.main())
