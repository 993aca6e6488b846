"""Tests that every error code in the sources has a page in docs/errors, and that every page has a code in the sources.

The test reads the tree through this file's own place in the checkout, not through declared data. The test is therefore
tagged `external`, and Bazel runs it every time.
"""

import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
SOURCES = ("actors", "compiler", "ops", "runtime", "sbp", "tools")
PAGES = os.path.join(ROOT, "docs", "errors")
# A code stands at the beginning of a string, perhaps after the program's name. The string is the first part of a
# Problem, or of a message that is written out.
CODE = re.compile(r'"(?:weir: )?(W\d{4})\b')


def codes_in_sources():
    """Returns {code: [paths]} of the sources that are not tests."""
    codes = {}
    for folder in SOURCES:
        for parent, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if not name.endswith((".cc", ".h", ".cu", ".py")) or name.endswith(("_test.cc", "_test.py")):
                    continue
                path = os.path.join(parent, name)
                with open(path, encoding="utf-8") as file:
                    for code in CODE.findall(file.read()):
                        codes.setdefault(code, []).append(os.path.relpath(path, ROOT))
    return codes


class ErrorPagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.codes = codes_in_sources()
        cls.pages = {name[:-3] for name in os.listdir(PAGES) if re.fullmatch(r"W\d{4}\.md", name)}

    def test_codes_were_found(self):
        self.assertGreater(len(self.codes), 100)

    def test_every_code_has_a_page(self):
        missing = [f"{code} ({', '.join(sorted(set(paths)))})" for code, paths in sorted(self.codes.items())
                   if code not in self.pages]
        self.assertEqual(missing, [], "write docs/errors/CODE.md, like docs/errors/W0301.md")

    def test_every_page_has_a_code(self):
        self.assertEqual(sorted(self.pages - set(self.codes)), [], "nothing in the sources says these any more")

    def test_every_page_has_a_title_an_explanation_and_advice(self):
        for code in sorted(self.pages):
            with open(os.path.join(PAGES, code + ".md"), encoding="utf-8") as file:
                text = file.read()
            with self.subTest(code=code):
                self.assertRegex(text, rf"\A# {code}: \S.*\n\n\S")
                self.assertIn("**What to do.**", text)


if __name__ == "__main__":
    unittest.main()
