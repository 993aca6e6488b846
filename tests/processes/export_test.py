"""Tests exports of weights of the real program: two at one time, and a disk that refuses a rename or kills.

Debian's package strace places the faults.
"""

import fcntl
import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import unittest

from tests.processes import weir_jobs

CANNOT_WRITE = 66
FILE = "out/model.safetensors"
ONNX_FILE = "out/model.onnx"
SHARDS = ("checkpoint", "export", "new.st", "--safetensors", "-o", FILE, "--max-shard-size", "64KiB")
PUBLIC = ("export", "job.textproto", "--weights", "new.st", "--safetensors", FILE, "--max-shard-size", "64KiB")
ONNX = ("export", "job.textproto", "--weights", "new.st", "--onnx", ONNX_FILE, "--beside")
CALLS_MAX = 20  # of one kind, in an export
# The system calls that give a file its name. A file that replaces none is linked, or renamed where links are refused.
NAMING = ("?rename,?renameat", "linkat")


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Exports(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job("--steps", "2")
        self.place.train("--save", "old.st")
        self.place.train("--steps", "3", "--save", "new.st")
        os.mkdir(self.place.path("out"))

    def try_to(self, *words):
        return subprocess.run([*words[:-1], self.place.program, *words[-1]], cwd=self.place.folder,
                              env=self.place.environment, capture_output=True, text=True,
                              timeout=weir_jobs.LIMIT_S, check=False)

    def files(self):
        """Returns a digest of each file in the folder of the exports, by name."""
        return {name: digest(self.place.bytes_of(os.path.join("out", name)))
                for name in os.listdir(self.place.path("out"))}

    def export_old(self, words=SHARDS):
        """Puts an export of the old weights in the place of whatever is there."""
        shutil.rmtree(self.place.path("out"))
        os.mkdir(self.place.path("out"))
        self.place.run(*("old.st" if word == "new.st" else word for word in words))
        return self.files()

    def test_an_export_is_refused_while_another_process_exports_to_the_path(self):
        old = self.export_old()
        for path, words in ((FILE, SHARDS), (FILE, PUBLIC), (ONNX_FILE, ONNX)):
            with self.subTest(words=words), open(self.place.path(f"{path}.lock"), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                refused = self.try_to(words)
                self.assertEqual(refused.returncode, CANNOT_WRITE, refused.stderr)
                text = " ".join(refused.stderr.split())
                self.assertIn("W0961", text)
                self.assertIn(f"(pid {os.getpid()})", text)
        locks = {"model.safetensors.lock": digest(b""), "model.onnx.lock": digest(b"")}
        self.assertEqual(self.files(), {**old, **locks})
        # The holders of the locks are gone.
        self.place.run(*SHARDS)
        self.place.run(*ONNX)
        self.assertEqual(self.files().keys(), {*old, "model.onnx", "model.onnx.data"})

    def test_what_stays_set_aside_is_named(self):
        # An export drops files alone, so a folder stays as a file does that the disk refuses to remove.
        name = f"{ONNX_FILE}.replaced-0123456789abcdef"
        os.mkdir(self.place.path(name))
        self.assertIn(f"note: an export has set aside {name}: ", self.place.run(*ONNX).stdout)

    def test_a_disk_that_refuses_a_rename_leaves_the_earlier_export(self):
        if shutil.which("strace") is None:
            print("NOT DRILLED: faults at system calls need strace (tools/deps/install --with-hosts)", file=sys.stderr)
            self.skipTest("no strace")
        for fault in ("error=EIO", "signal=KILL"):
            for words, calls in itertools.product((SHARDS, ONNX), NAMING):
                is_hit = True
                for number in range(1, CALLS_MAX):
                    with self.subTest(words=words, fault=fault, calls=calls, number=number):
                        is_hit = self.export_with(words, fault, calls, number)
                    if not is_hit:
                        break
                self.assertFalse(is_hit, f"an export makes {CALLS_MAX} calls or more")

    def export_with(self, words, fault, calls, number):
        """Exports with a fault at the call of this number. Returns whether the export makes so many calls."""
        old = self.export_old(words)
        ended = self.try_to("strace", "-f", "--seccomp-bpf", "-qq", "-o", self.place.path("calls.txt"), "-e",
                            f"trace={calls}", "-e", f"inject={calls}:{fault}:when={number}", words)
        with open(self.place.path("calls.txt"), encoding="utf-8", errors="replace") as file:
            traced = file.read()
        is_hit = "INJECTED" in traced or "+++ killed by SIGKILL +++" in traced
        self.assertEqual(ended.returncode != 0, is_hit, ended.stderr)
        if is_hit and "KILL" not in fault:
            self.assertEqual(ended.returncode, CANNOT_WRITE, ended.stderr)
            self.assertIn("the earlier export is in its place again", " ".join(ended.stderr.split()))
            self.assertEqual(self.files(), old)
        left = self.files()
        self.place.run(*words)
        if "model.onnx" in left:  # beside its own weights
            is_new = not is_hit or any(".replaced-" in name for name in left)
            of = self.files() if is_new else old
            self.assertEqual(left["model.onnx.data"], of["model.onnx.data"])
        self.assertEqual(self.files().keys(), old.keys())
        return is_hit


if __name__ == "__main__":
    unittest.main()
