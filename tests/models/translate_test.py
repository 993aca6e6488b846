"""Runs translator_check.py where a PyTorch is that can export models, and says aloud where there is none."""

import os
import pathlib
import subprocess
import sys
import unittest

from tests.models import find_torch

ROOT = pathlib.Path.cwd()


class TranslateTest(unittest.TestCase):

    def test_the_translator_agrees_with_pytorch(self):
        python = find_torch.find_torch()
        if python is None:
            print(f"SKIPPED, NOTHING WAS TESTED: {find_torch.MISSING}", file=sys.stderr)
            self.skipTest(find_torch.MISSING)
        path = os.pathsep.join([str(ROOT), str(ROOT / "tools/python")])
        done = subprocess.run([python, ROOT / "tests/models/translator_check.py"], check=False,
                              env={**os.environ, "PYTHONPATH": path, "WEIR": str(ROOT / "tools/weir")})
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
