"""Tests how mutants are put into copies of sources, and which catalogues are refused."""

import unittest

from tests.chaos import mutation
from tests.chaos.mutation import Before, Expression, Mutant, Statement

SOURCE = """#include "a/b.h"

#include "a/c.h"

int F(int x) {
  if (x > 0) return 1;
  G(x,
    2);
  return x;
}
"""
TEXTS = {"a/b.cc": SOURCE, "a/b.h": "// B.\n#include <x>\n"}


def mutant(*edits, name="wrong", what="It is wrong.", killed_by=mutation.CHAOS):
    return Mutant(name, what, edits, killed_by)


def copy_of(*mutants):
    return mutation.rewrite("a/b.cc", TEXTS, mutants, "copies")


class FindFragmentTest(unittest.TestCase):
    def test_white_space_matches_any_white_space(self):
        self.assertEqual(len(mutation.find_fragment(SOURCE, "G(x, 2);")), 1)
        self.assertEqual(len(mutation.find_fragment(SOURCE, " G(x,\n 2);\n")), 1)
        self.assertEqual(mutation.find_fragment(SOURCE, "G(x,2);"), [])

    def test_names_match_as_a_whole(self):
        self.assertEqual(len(mutation.find_fragment("port; report; port_; port", "port")), 2)


class RewriteTest(unittest.TestCase):
    def test_a_source_without_edits_changes_its_includes_of_copies_only(self):
        self.assertEqual(copy_of(), SOURCE.replace('"a/b.h"', '"copies/a/b.h"'))

    def test_an_expression_keeps_the_original_for_the_other_mutants(self):
        copy = copy_of(mutant(Expression("a/b.cc", "x > 0", "x >= 0")), mutant(Expression("a/b.cc", "x > 0", "x < 0")))
        self.assertIn("if ((::weir::chaos::MutantIsOn(0) ? (x >= 0) : "
                      "::weir::chaos::MutantIsOn(1) ? (x < 0) : (x > 0))) return 1;", copy)
        self.assertTrue(copy.startswith(mutation.SWITCH + '#include "copies/a/b.h"\n'))

    def test_a_statement_can_be_removed(self):
        self.assertIn("{ if (::weir::chaos::MutantIsOn(0)) {  } else { G(x,\n    2); } }\n",
                      copy_of(mutant(Statement("a/b.cc", "G(x, 2);", ""))))

    def test_code_can_be_executed_before_a_statement(self):
        self.assertIn("  if (::weir::chaos::MutantIsOn(0)) { ++x; } if (x > 0) return 1;\n",
                      copy_of(mutant(Before("a/b.cc", "if (x > 0)", "++x;"))))

    def test_a_mutant_may_have_several_edits_of_several_sources(self):
        both = mutant(Before("a/b.cc", "return x;", "++x;"), Statement("a/b.cc", "G(x, 2);", "G(x, 3);"),
                      Expression("a/b.h", "y", "z"))
        self.assertEqual(copy_of(both).count("MutantIsOn(0)"), 2)

    def test_edits_that_overlap_are_refused(self):
        for other in (Statement("a/b.cc", "if (x > 0) return 1;", ""), Statement("a/b.cc", "x > 0", "1;")):
            with self.assertRaisesRegex(mutation.MutationError, "overlap"):
                copy_of(mutant(Expression("a/b.cc", "x > 0", "true")), mutant(other, name="other"))

    def test_the_catalogue_names_every_mutant_in_order(self):
        source = mutation.catalogue_source([mutant(), mutant(name="other", killed_by=mutation.LEDGER_TEST)])
        rows = '    {"wrong", "It is wrong.", "chaos"},\n    {"other", "It is wrong.", "message_ledger_test"},\n'
        self.assertIn(rows, source)


class CheckMutantsTest(unittest.TestCase):
    def assert_refused(self, words, *mutants):
        errors = mutation.check_mutants(mutants, TEXTS)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(words, errors[0])

    def test_a_sound_catalogue_is_accepted(self):
        self.assertEqual(mutation.check_mutants([mutant(Expression("a/b.cc", "x > 0", "x < 0"))], TEXTS), [])

    def test_a_fragment_occurs_exactly_once(self):
        self.assert_refused("found 0", mutant(Statement("a/b.cc", "H(x);", "")))
        self.assert_refused("found 2", mutant(Expression("a/b.cc", "return", "1")))
        self.assert_refused("not among the sources", mutant(Statement("a/c.cc", "H(x);", "")))

    def test_an_entry_is_well_formed(self):
        edit = Expression("a/b.cc", "x > 0", "x < 0")
        self.assert_refused("two mutants", mutant(edit), mutant(edit))
        self.assert_refused("lower-case", mutant(edit, name="Wrong_one"))
        self.assert_refused("a sentence", mutant(edit, what="wrong"))
        self.assert_refused("killed by one of", mutant(edit, killed_by="nobody"))
        self.assert_refused("at least one edit", mutant())

    def test_an_edit_is_of_its_kind_and_changes_something(self):
        self.assert_refused("by itself", mutant(Expression("a/b.cc", "x > 0", " x > 0 ")))
        self.assert_refused("by an expression", mutant(Expression("a/b.cc", "x > 0", "return 2;")))
        self.assert_refused("a statement ends", mutant(Statement("a/b.cc", "x > 0", "return 2;")))
        self.assert_refused("a statement ends", mutant(Statement("a/b.cc", "G(x, 2);", "G(x, 3)")))
        self.assert_refused("nothing is executed", mutant(Before("a/b.cc", "G(x, 2);", "")))


if __name__ == "__main__":
    unittest.main()
