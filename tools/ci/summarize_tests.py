"""Counts test cases from Bazel's build events and prints `N passed, N failed` as the last line.

Usage: summarize_tests.py RUN_DIRECTORY...

Each directory holds events.json (bazel --build_event_json_file) and exit_code. A target with a GoogleTest report counts
by its cases. Any other target counts as one case. A target that did not build, did not end or crashed counts as failed
even when its report is missing. A non-test target or a package that fails counts as failed, too. Skipped and disabled
cases count as neither passed nor failed. The program exits with 0 only if something passed, nothing failed, and Bazel
itself ended well.
"""

import dataclasses
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

# The counts below already account for these exit codes of Bazel: success, build failure, test failure.
EXPECTED_EXIT_CODES = {0, 1, 3}
NO_TESTS_FOUND = 4


@dataclasses.dataclass
class Outcome:
    """An Outcome is the result of one target."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""


def count_cases(report_path):
    """Returns (passed, failed, skipped) of one JUnit-like report, or None if the report cannot be read."""
    try:
        root = ElementTree.parse(report_path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    passed = failed = skipped = 0
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def path_of(uri):
    """Returns the local path behind a file: address."""
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def read_events(path):
    """Returns the events of one run. A line that a crash of Bazel cut short ends the list."""
    events = []
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    events.append(json.loads(line))
    except (OSError, json.JSONDecodeError):
        pass
    return events


def outcomes_of(events):
    """Returns {label: Outcome} for the events of one run."""
    kinds = {}
    attempts = {}
    unbuilt = {}
    outcomes = {}
    for event in events:
        identity = event.get("id", {})
        if "targetConfigured" in identity:
            kinds[identity["targetConfigured"]["label"]] = event.get("configured", {}).get("targetKind", "")
        elif "targetCompleted" in identity:
            if not event.get("completed", {}).get("success", False):
                unbuilt[identity["targetCompleted"]["label"]] = "did not build"
        elif "pattern" in identity and "aborted" in event:
            unbuilt[" ".join(identity["pattern"]["pattern"])] = "could not be loaded"
        elif "unconfiguredLabel" in identity or "configuredLabel" in identity:
            if "aborted" in event:
                label = (identity.get("unconfiguredLabel") or identity.get("configuredLabel"))["label"]
                unbuilt[label] = "could not be loaded"
        elif "testResult" in identity and "testResult" in event:
            result = identity["testResult"]
            key = (result["label"], result.get("shard", 1), result.get("run", 1))
            # A later attempt of a flaky test replaces an earlier one.
            if result.get("attempt", 1) >= attempts.get(key, (0, None))[0]:
                attempts[key] = (result.get("attempt", 1), event["testResult"])
    for (label, _, _), (_, result) in sorted(attempts.items(), key=lambda item: item[0]):
        outcome = outcomes.setdefault(label, Outcome())
        reports = [output for output in result.get("testActionOutput", []) if output.get("name") == "test.xml"]
        counts = count_cases(path_of(reports[0]["uri"])) if reports else None
        passed, failed, skipped = counts or (0, 0, 0)
        if result.get("status") in ("PASSED", "FLAKY"):
            # Without a report the target itself is the case; an empty report is a test program without cases.
            if counts is None or counts == (0, 0, 0):
                passed, failed = (1, 0) if counts is None else (0, 0)
        elif failed == 0:
            failed = 1
        if result.get("status") not in ("PASSED", "FLAKY"):
            outcome.reason = result.get("status", "no status").lower().replace("_", " ")
        outcome.passed += passed
        outcome.failed += failed
        outcome.skipped += skipped
    for label, reason in unbuilt.items():
        if label not in outcomes:
            outcomes[label] = Outcome(failed=1, reason=reason)
    return outcomes


def summarize(directories):
    """Prints the failures and the totals of all runs, and returns the exit code."""
    passed = failed = skipped = 0
    for directory in directories:
        outcomes = outcomes_of(read_events(os.path.join(directory, "events.json")))
        with open(os.path.join(directory, "exit_code"), encoding="utf-8") as file:
            exit_code = int(file.read())
        run_failed = 0
        for label, outcome in sorted(outcomes.items()):
            passed += outcome.passed
            run_failed += outcome.failed
            skipped += outcome.skipped
            if outcome.failed:
                print(f"FAILED {label}: {outcome.failed} of {outcome.passed + outcome.failed} ({outcome.reason})")
        if exit_code != 0 and run_failed == 0:
            known = exit_code in EXPECTED_EXIT_CODES
            what = "found no test" if exit_code == NO_TESTS_FOUND else f"ended with exit code {exit_code}"
            print(f"FAILED bazel {what}" + (", though no target says why" if known else ""))
            run_failed = 1
        failed += run_failed
    if skipped:
        print(f"{skipped} skipped or disabled")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(summarize(sys.argv[1:]))
