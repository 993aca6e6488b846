"""Holds every mutex of the tree to its annotations.

The first argument is the report of clang's analysis (thread_safety.bzl). The test also reads the sources through this
file's own place in the checkout, to see that no source with a mutex was left out. The test is therefore tagged
`external`, and Bazel runs it every time; the analysis itself comes from the cache.
"""

import json
import os
import sys
import tempfile
import unittest

from tests.layering.source_tree import SourceTree
from tests.thread_safety import check_sources

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
# Abseil's own locks, which the sanitizer's wrapper names and Weir's code does not use.
NOT_OURS = {"tools/deps/sanitizer/absl_for_tsan.cc"}
REPORT = sys.argv.pop(1) if len(sys.argv) > 1 else None

GUARDED = """
#include "runtime/base/mutex.h"

class Counter {
 public:
  void Add() {
    weir::MutexLock lock(&mutex_);
    ++count_;
  }
  void AwaitOne() {
    weir::MutexLock lock(&mutex_);
    changed_.Wait(&mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ > 0; });
  }
  int count() {
    %s
    return count_;
  }

 private:
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { count_ = 0; }
  void Reset() {
    %s
    Clear();
  }
  weir::Mutex mutex_;
  weir::CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
"""
LOCK = "weir::MutexLock lock(&mutex_);"


class TreeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(REPORT, encoding="utf-8") as report:
            cls.errors = {entry["source"]: entry["errors"] for entry in map(json.loads, report)}

    def test_what_a_mutex_guards_is_touched_under_the_mutex(self):
        self.assertGreater(len(self.errors), 20)
        wrong = [text for _, text in sorted(self.errors.items()) if text]
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def test_every_source_with_a_mutex_is_analysed(self):
        tree = SourceTree.read(ROOT)
        paths = [path for path, _ in tree.cxx() if path.endswith((".cc", ".h")) and path not in NOT_OURS]
        before = os.getcwd()
        os.chdir(ROOT)
        try:
            wanted = {path for path in paths if check_sources.names_a_lock(path)}
            covered = set(self.errors) | {path[:-3] + ".h" for path in self.errors if path.endswith(".cc")}
        finally:
            os.chdir(before)
        missing = sorted(wanted - covered)
        self.assertEqual(missing, [], "add a target that is built from them to //tests/thread_safety:report")


class PlantedErrorTest(unittest.TestCase):
    def errors_of(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "planted.cc")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.assertEqual(check_sources.sources_to_analyse([path]), [path])
            return check_sources.analyse(path, [ROOT], [])

    def test_guarded_accesses_pass(self):
        self.assertEqual(self.errors_of(GUARDED % (LOCK, LOCK)), "")

    def test_an_access_without_the_lock_is_found(self):
        self.assertIn("requires holding mutex 'mutex_'", self.errors_of(GUARDED % ("", LOCK)))

    def test_a_call_without_the_lock_that_it_needs_is_found(self):
        self.assertIn("calling function 'Clear' requires holding mutex", self.errors_of(GUARDED % (LOCK, "")))

    def test_a_lock_that_is_taken_twice_is_found(self):
        self.assertIn("already held", self.errors_of(GUARDED % (LOCK + " mutex_.Lock();", LOCK)))

    def test_a_source_without_a_mutex_is_not_analysed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plain.cc")
            with open(path, "w", encoding="utf-8") as file:
                file.write("int x;\n")
            self.assertEqual(check_sources.sources_to_analyse([path]), [])
            with open(os.path.join(folder, "plain.h"), "w", encoding="utf-8") as file:
                file.write("Mutex mutex_;\n")
            self.assertEqual(check_sources.sources_to_analyse([path]), [path])


if __name__ == "__main__":
    unittest.main()
