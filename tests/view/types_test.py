"""Tests that the TypeScript compiler accepts the page of `weir view`. The bundler does not look at types."""

import subprocess
import unittest


class Types(unittest.TestCase):
    def test_the_page_has_no_type_errors(self):
        ended = subprocess.run(["/usr/bin/tsc", "--project", "tools/view/page/tsconfig.json"], capture_output=True,
                               text=True)
        self.assertEqual(ended.returncode, 0, ended.stdout)


if __name__ == "__main__":
    unittest.main()
