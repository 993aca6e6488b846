"""Tests that docs/reference and the indexes are complete: fields, operations, verbs, how-tos and references.

The test reads the tree through this file's own place in the checkout, so the test is tagged `external`.
"""

import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
WEIR = os.path.abspath(os.environ.get("WEIR", "tools/weir"))


def text_of(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


def fields_of_proto(text):
    """Returns the names of all fields of all messages."""
    code = re.sub(r"//.*", "", text)
    return set(re.findall(r"^\s*(?:(?:repeated|optional)\s+)?[\w.]+\s+(\w+)\s*=\s*\d+;",
                          re.sub(r"[{}]", "\n", re.sub(r";", ";\n", code)), re.MULTILINE))


def enum_values(text):
    code = re.sub(r"//.*", "", text)
    return {value for body in re.findall(r"enum \w+ {([^}]*)}", code)
            for value in re.findall(r"(\w+)\s*=\s*\d+;", body)}


def weir(*words):
    return subprocess.run([WEIR, *words], capture_output=True, text=True, check=True).stdout


class ReferenceTest(unittest.TestCase):
    def test_the_job_file_reference_names_every_field_and_value(self):
        reference = text_of("docs", "reference", "job_file.md")
        words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", reference))))
        for proto in ("graph.proto", "job.proto"):
            text = text_of("proto", proto)
            fields = fields_of_proto(text)
            self.assertGreater(len(fields), 20)
            self.assertEqual(sorted((fields | enum_values(text)) - words), [],
                             f"proto/{proto}: not in docs/reference/job_file.md")

    def test_the_reference_of_operations_names_every_operation(self):
        names = [line.split()[0] for line in weir("ops").splitlines()]
        self.assertGreater(len(names), 20)
        quoted = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", text_of("docs", "reference", "ops.md")))))
        self.assertEqual([name for name in names if name not in quoted], [])

    def test_the_readme_names_every_verb(self):
        subcommands = weir("--help").split("Subcommands:")[1].split("\n\n")[0]
        verbs = re.findall(r"^  (\w+)", subcommands, re.MULTILINE)
        self.assertGreater(len(verbs), 5)
        readme = text_of("README.md")
        self.assertEqual([verb for verb in verbs if f"`weir {verb}" not in readme], [])

    def test_the_index_names_every_how_to_and_reference(self):
        index = text_of("docs", "README.md")
        for folder in ("how_to", "reference"):
            for name in sorted(os.listdir(os.path.join(ROOT, "docs", folder))):
                self.assertIn(f"({folder}/{name})", index)


if __name__ == "__main__":
    unittest.main()
