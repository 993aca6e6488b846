"""Tests the counts of tools/test on planted build events."""

import json
import os
import tempfile
import unittest
from tools.ci import summarize_tests

REPORT = """<testsuites><testsuite name="S">
<testcase name="A" status="run" result="completed"/>
<testcase name="B" status="run" result="completed"><failure message="no"/></testcase>
<testcase name="C" status="run" result="skipped"/>
<testcase name="D" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class SummarizeTestsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="a b")  # a path that a file: address must escape
        self.addCleanup(self.folder.cleanup)

    def result(self, label, status, report=REPORT, **identity):
        outputs = []
        if report is not None:
            path = os.path.join(self.folder.name, "report%d.xml" % len(os.listdir(self.folder.name)))
            with open(path, "w", encoding="utf-8") as file:
                file.write(report)
            outputs = [{"name": "test.xml", "uri": "file://" + path.replace(" ", "%20")}]
        return {
            "id": {"testResult": dict(identity, label=label)},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def run_summary(self, events, exit_code):
        with open(os.path.join(self.folder.name, "events.json"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        with open(os.path.join(self.folder.name, "exit_code"), "w", encoding="utf-8") as file:
            file.write(str(exit_code))
        return summarize_tests.summarize([self.folder.name])

    def test_cases_are_counted_from_the_report(self):
        outcome = summarize_tests.outcomes_of([self.result("//a", "FAILED")])["//a"]
        self.assertEqual((outcome.passed, outcome.failed, outcome.skipped), (1, 1, 2))

    def test_a_crash_without_a_report_is_one_failure(self):
        outcome = summarize_tests.outcomes_of([self.result("//a", "FAILED", report=None)])["//a"]
        self.assertEqual((outcome.passed, outcome.failed), (0, 1))

    def test_a_timeout_whose_report_shows_no_failure_is_one_failure(self):
        passing = "<testsuites><testsuite><testcase name='A'/></testsuite></testsuites>"
        outcome = summarize_tests.outcomes_of([self.result("//a", "TIMEOUT", report=passing)])["//a"]
        self.assertEqual((outcome.passed, outcome.failed, outcome.reason), (1, 1, "timeout"))

    def test_shards_add_up_and_a_later_attempt_replaces_an_earlier_one(self):
        outcome = summarize_tests.outcomes_of([
            self.result("//a", "PASSED", report=None, shard=1),
            self.result("//a", "FAILED", report=None, shard=2, attempt=1),
            self.result("//a", "FLAKY", report=None, shard=2, attempt=2),
        ])["//a"]
        self.assertEqual((outcome.passed, outcome.failed), (2, 0))

    def test_a_target_that_did_not_build_is_one_failure(self):
        events = [{"id": {"targetCompleted": {"label": "//a"}}, "completed": {"success": False}}]
        self.assertEqual(summarize_tests.outcomes_of(events)["//a"].failed, 1)

    def test_nothing_run_is_not_success(self):
        self.assertEqual(self.run_summary([], 0), 1)
        self.assertEqual(self.run_summary([], 4), 1)

    def test_a_failure_of_bazel_itself_is_not_success(self):
        self.assertEqual(self.run_summary([self.result("//a", "PASSED", report=None)], 37), 1)
        self.assertEqual(self.run_summary([self.result("//a", "PASSED", report=None)], 0), 0)


if __name__ == "__main__":
    unittest.main()
