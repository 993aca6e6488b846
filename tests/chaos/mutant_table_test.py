"""Tests that the mutants fit the sources, and that the programs with mutants do not link the product's own objects."""

import collections
import os
import unittest

from tests.chaos import mutation
from tests.chaos.mutant_table import MUTANTS

# The folders of which BUILD gives this test the sources that have mutants.
FOLDERS = ("actors/engine", "actors/protocol", "runtime/control", "runtime/device", "runtime/device/cuda",
           "runtime/store", "runtime/transport", "tools/fleet", "tools/job", "tools/launch")
NUM_MUTANTS_MIN = 97  # may only rise


def source_texts():
    texts = {}
    for folder in FOLDERS:
        for name in os.listdir(folder):
            if os.path.isdir(os.path.join(folder, name)):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                texts[f"{folder}/{name}"] = file.read()
    return texts


class MutantTableTest(unittest.TestCase):
    def test_every_fragment_occurs_once_and_every_entry_is_well_formed(self):
        self.assertEqual(mutation.check_mutants(MUTANTS, source_texts()), [])

    def test_mutants_do_not_become_fewer(self):
        self.assertGreaterEqual(len(MUTANTS), NUM_MUTANTS_MIN)

    def test_a_copy_differs_from_its_source_by_the_edits_and_the_includes_only(self):
        texts = source_texts()
        edited = {edit.path for mutant in MUTANTS for edit in mutant.edits}
        for path, text in texts.items():
            copy = mutation.rewrite(path, texts, MUTANTS, "elsewhere")
            self.assertEqual(copy.count("MutantIsOn(") > 0, path in edited, path)
            if path not in edited:
                self.assertEqual(copy.replace('#include "elsewhere/', '#include "'), text)

    def test_every_mutant_is_in_the_copies(self):
        texts = source_texts()
        edits = collections.Counter(edit.path for mutant in MUTANTS for edit in mutant.edits)
        for path, count in edits.items():
            copy = mutation.rewrite(path, texts, MUTANTS, "elsewhere")
            self.assertEqual(copy.count("MutantIsOn("), count, path)

    def test_the_sources_know_nothing_of_mutants(self):
        for path, text in source_texts().items():
            self.assertNotIn("mutant", text.lower(), path)

    def test_no_program_links_both_a_source_and_its_copy(self):
        with open("tests/chaos/originals_beside_copies", encoding="utf-8") as file:
            self.assertEqual(file.read(), "")


if __name__ == "__main__":
    unittest.main()
