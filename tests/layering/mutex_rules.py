"""Checks that every mutex says what it guards, in annotations that clang's analysis reads (tests/thread_safety).

A rule has the same shape as in include_rules: it takes a SourceTree and returns violations.
"""

import re

# The one file that is built on the standard's types, and the one that wraps Abseil's for a sanitizer.
_HOMES = {"runtime/base/mutex.h", "tools/deps/sanitizer/absl_for_tsan.cc"}
_FOREIGN = re.compile(r"\b(std::(?:(?:recursive_|shared_|timed_|recursive_timed_|shared_timed_)?mutex"
                      r"|condition_variable(?:_any)?|lock_guard|unique_lock|shared_lock|scoped_lock)"
                      r"|absl::(?:Mutex|MutexLock|ReaderMutexLock|WriterMutexLock|CondVar))\b")
_COMMENT = re.compile(r"//[^\n]*")
_MUTEX = re.compile(r"^[ \t]*(?:(?:static|mutable|inline|constinit)[ \t]+)*(?:weir::)?Mutex[ \t]+(\w+)"
                    r"[ \t]*(?:ABSL_\w+\([^;]*\)[ \t]*)?;[^\n]*", re.MULTILINE)
_GUARD = re.compile(r"(\w+)\s+ABSL_(?:PT_)?GUARDED_BY\(([\w.\->]+)\)")
_NO_MEMBER = "uards no member"  # a comment at the mutex says why
_LINES_ABOVE = 3


def _code_of(text):
    """Returns a C++ text whose comments are blank, and whose other text stays in its place."""
    return _COMMENT.sub(lambda comment: " " * len(comment.group(0)), text)


def check_mutex_types(tree):
    """Checks that locks are those of runtime/base/mutex.h, because the analysis knows no other locks of Weir."""
    violations = []
    for path, text in tree.cxx():
        if path in _HOMES:
            continue
        for match in _FOREIGN.finditer(_code_of(text)):
            line = text.count("\n", 0, match.start()) + 1
            violations.append(f"{path}:{line}: {match.group(1)} carries no annotations; use runtime/base/mutex.h")
    return violations


def check_mutexes_guard(tree):
    """Checks that each mutex guards a member, by ABSL_GUARDED_BY, or has a comment `Guards no member ...: why`."""
    violations = []
    for path, text in tree.cxx():
        if path in _HOMES:
            continue
        guards = {re.split(r"\.|->", guard.group(2))[-1] for guard in _GUARD.finditer(_code_of(text))}
        for mutex in _MUTEX.finditer(text):
            above = text[:mutex.start()].split("\n")[-1 - _LINES_ABOVE:]
            reason = "\n".join([line for line in above if line.strip().startswith("//")] + [mutex.group(0)])
            if mutex.group(1) not in guards and _NO_MEMBER not in reason:
                line = text.count("\n", 0, mutex.start(1)) + 1
                violations.append(f"{path}:{line}: no member is ABSL_GUARDED_BY({mutex.group(1)}); annotate what the "
                                  "mutex guards, or say in a comment there that it guards no member, and why")
    return violations


def check_guarded_members_are_private(tree):
    """Checks that guarded members in headers are private: by their names, they are members of a class, not a struct.

    The analysis can then leave out all sources but those that belong to the header.
    """
    violations = []
    for path, text in tree.with_suffix(".h"):
        for guard in _GUARD.finditer(_code_of(text)):
            if not guard.group(1).endswith("_"):
                line = text.count("\n", 0, guard.start()) + 1
                violations.append(f"{path}:{line}: {guard.group(1)} is guarded and public; make it a private member")
    return violations


MUTEX_RULES = [check_mutex_types, check_mutexes_guard, check_guarded_members_are_private]
