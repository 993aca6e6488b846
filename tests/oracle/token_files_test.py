"""Tests that Weir reads files of tokens as NumPy and others write them.

The same tokens in every form give the same training run.
"""

import json
import os
import struct
import subprocess
import tempfile
import unittest

import numpy

WEIR = "tools/weir"
VOCAB = 500
STEPS = 3


def llmc(tokens, magic, version):
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(tokens)
    return header.tobytes() + tokens.tobytes()


class TokenFiles(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        job = subprocess.run([WEIR, "zoo", "gpt", "--layers", "1", "--hidden", "16", "--heads", "2", "--sequence", "16",
                              "--batch", "4", "--vocab", str(VOCAB), "--steps", str(STEPS)],
                             check=True, capture_output=True).stdout
        self.job = self.path("job.textproto")
        with open(self.job, "wb") as out:
            out.write(job)
        self.tokens = numpy.random.RandomState(7).randint(0, VOCAB, 3000)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as out:
            out.write(data)
        return self.path(name)

    def weir(self, *settings):
        flags = [flag for setting in settings for flag in ("--set", setting)]
        return subprocess.run([WEIR, "train", self.job, "--metrics", self.path("metrics.jsonl"), *flags],
                              capture_output=True, text=True)

    def losses(self, *settings):
        run = self.weir(*settings)
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.path("metrics.jsonl"), encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        return [record["loss"] for record in records if "loss" in record]

    def npy(self, dtype):
        path = self.path(f"{dtype}.npy")
        numpy.save(path, self.tokens.astype(dtype))
        return path

    def test_every_form_of_the_same_tokens_gives_the_same_run(self):
        u16, u32 = self.tokens.astype("<u2"), self.tokens.astype("<u4")
        expected = self.losses(f"data.tokens.path={self.npy('uint16')}")
        self.assertEqual(len(expected), STEPS)
        megatron = self.write("megatron.bin", u16.tobytes())
        self.write("megatron.idx", b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 1, 1))
        forms = {
            "npy u32": (self.npy("uint32"), None),
            "npy i32": (self.npy("int32"), None),
            "npy i64": (self.npy("int64"), None),
            "raw u16": (self.write("raw16", u16.tobytes()), "U16"),
            "raw u32": (self.write("raw32", u32.tobytes()), "U32"),
            "llm.c u16": (self.write("llmc16", llmc(u16, 20240520, 1)), None),
            "llm.c u32": (self.write("llmc32", llmc(u32, 20240801, 7)), None),
            "Megatron u16": (megatron, None),
        }
        for name, (path, kind) in forms.items():
            with self.subTest(form=name):
                settings = [f"data.tokens.path={path}"] + ([f"data.tokens.type={kind}"] if kind else [])
                self.assertEqual(self.losses(*settings), expected)
        # Other tokens give another run.
        self.tokens = self.tokens[::-1]
        self.assertNotEqual(self.losses(f"data.tokens.path={self.npy('uint16')}"), expected)

    def test_a_token_beyond_the_vocabulary_ends_the_run_before_the_first_step(self):
        self.tokens[1234] = VOCAB
        run = self.weir(f"data.tokens.path={self.npy('uint16')}")
        self.assertEqual(run.returncode, 65)
        self.assertIn("W0051", run.stderr)
        self.assertIn("token 1234", " ".join(run.stderr.split()))

    def test_an_array_of_real_numbers_is_refused(self):
        run = self.weir(f"data.tokens.path={self.npy('float32')}")
        self.assertEqual(run.returncode, 65)
        self.assertIn("W0909", run.stderr)


if __name__ == "__main__":
    unittest.main()
