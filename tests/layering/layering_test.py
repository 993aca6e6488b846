"""Holds the real tree to the rules. Each rule is one test, and a test lists all violations at once.

The test reads the sources through this file's own place in the checkout, not through declared data. The test is
therefore tagged `external`, and Bazel runs it every time.
"""

import os
import subprocess
import unittest

from tests.layering import definition_rules
from tests.layering import include_rules
from tests.layering import mutex_rules
from tests.layering import style_rules
from tests.layering import visibility_rules
from tests.layering.source_tree import SourceTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
ALLOW_LIST = "tests/layering/long_files.txt"
LONG_FILES_MAX = 0  # may only fall
FORMATTER = "clang-format-14"  # other versions format differently
FILES_PER_RUN = 64


class LayeringTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = SourceTree.read(ROOT)
        with open(os.path.join(ROOT, ALLOW_LIST), encoding="utf-8") as file:
            cls.allowed = style_rules.parse_allow_list(file.read())

    def expect_none(self, violations):
        if violations:
            self.fail("\n  " + "\n  ".join(violations))

    def test_the_tree_was_found(self):
        self.assertIn("WORKSPACE", self.tree.paths)
        self.assertGreater(len(self.tree.cxx()), 10)

    def test_sources_are_formatted(self):
        paths = [path for path, _ in self.tree.cxx()]
        violations = []
        for first in range(0, len(paths), FILES_PER_RUN):
            command = [FORMATTER, "--dry-run", "--Werror", "--ferror-limit=1", *paths[first:first + FILES_PER_RUN]]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                violations += [line for line in result.stderr.splitlines() if ": error: " in line] or [result.stderr]
        self.expect_none([f"{line}; run {FORMATTER} -i on it" for line in violations])

    def test_sources_keep_to_their_length(self):
        self.expect_none(style_rules.check_length(self.tree, self.allowed))
        self.assertLessEqual(len(self.allowed), LONG_FILES_MAX, f"{ALLOW_LIST} may only shrink")


def _add_test(rule):
    def test(self):
        self.expect_none(rule(self.tree))

    test.__doc__ = rule.__doc__
    setattr(LayeringTest, "test_" + rule.__name__.replace("check_", ""), test)


for _rule in (include_rules.INCLUDE_RULES + style_rules.STYLE_RULES + definition_rules.DEFINITION_RULES +
              mutex_rules.MUTEX_RULES + visibility_rules.VISIBILITY_RULES):
    _add_test(_rule)

if __name__ == "__main__":
    unittest.main()
