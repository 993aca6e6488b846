"""Runs clang's thread safety analysis over those of the given sources that have to do with a mutex.

    check_sources.py --report FILE [--include FOLDER]... [--define NAME]... SOURCE...

A source has to do with a mutex if the source, or the header of the same name, names a mutex, a lock or an annotation.
Guarded members are private (tests/layering/mutex_rules.py), so no other source can touch what a mutex guards. A header
is analysed by itself if no .cc file of its name was given. The report has a line of JSON for each source analysed:
{"source": path, "errors": text of clang, empty if all is well}. The exit code is 0 whatever clang finds: the test that
reads the report fails (thread_safety_test.py). Without clang the exit code is 1, so that Bazel keeps no such report.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

CLANG = "clang-14"
_WARNINGS = ["-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]
_LOCKS = re.compile(r"\b(Mutex|MutexLock|CondVar"
                    r"|ABSL_(\w+_)?(GUARDED_BY|LOCKS?_\w+|LOCKABLE|ASSERT_\w+|ACQUIRED_\w+|UNLOCK_FUNCTION))\b")


def names_a_lock(path):
    """Returns whether a file names a mutex, a lock or an annotation."""
    with open(path, encoding="utf-8") as file:
        return _LOCKS.search(file.read()) is not None


def sources_to_analyse(paths):
    """Returns those of the paths that clang must see."""
    chosen = []
    for path in paths:
        stem, suffix = os.path.splitext(path)
        if suffix == ".h":
            if stem + ".cc" not in paths and names_a_lock(path):
                chosen.append(path)
        elif names_a_lock(path) or (os.path.exists(stem + ".h") and names_a_lock(stem + ".h")):
            chosen.append(path)
    return chosen


def analyse(path, includes, defines):
    """Returns what clang says of a source; empty if all is well."""
    command = [CLANG, "-x", "c++", "-std=c++20", "-fsyntax-only", *_WARNINGS]
    command += ["-I" + folder for folder in includes] + ["-D" + name for name in defines] + [path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stderr or f"{CLANG} ended with {result.returncode}"


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--define", action="append", default=[])
    parser.add_argument("source", nargs="+")
    options = parser.parse_args(arguments)
    if shutil.which(CLANG) is None:
        print(f"{CLANG} is missing; tools/deps/install --with-clang installs it", file=sys.stderr)
        return 1
    with open(options.report, "w", encoding="utf-8") as report:
        for path in sources_to_analyse(options.source):
            errors = analyse(path, options.include, options.define)
            report.write(json.dumps({"source": path, "errors": errors}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
