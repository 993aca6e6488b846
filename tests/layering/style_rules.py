"""Checks those demands of the style guide that a program can read off the text of a file.

A rule has the same shape as in include_rules: it takes a SourceTree and returns violations.
"""

import posixpath
import re

LINES_MAX = {".cc": 800, ".cu": 800, ".h": 400, ".cuh": 400}

_BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
_BANNED_TYPE = re.compile(r"^\s*(?:class|struct|enum class|enum|union)\s+(?:\w+\s+)*?"
                          r"(\w*(?:Util|Utils|Helper|Helpers|Common|Manager|Managers|Misc)(?![a-z])\w*)"
                          r"\s*(?:final\s*)?(?:[:{]|$)",
                          re.MULTILINE)

# The words are split so that this file does not break its own rule.
_MARK = "TO" + "DO"
_ANY_MARK = re.compile(r"\b(" + _MARK + "|FIX" + "ME|XX" + r"X|HA" + r"CK)\b.*")
_GOOD_MARK = re.compile(_MARK + r"\(#\d+\): \S")

_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def check_length(tree, allowed):
    """Checks that sources keep to LINES_MAX. `allowed` maps a path to its permitted length, which may only shrink."""
    violations = []
    for path, text in tree.cxx():
        cap = LINES_MAX[posixpath.splitext(path)[1]]
        length = len(text.splitlines())
        if path not in allowed:
            if length > cap:
                violations.append(f"{path}: {length} lines, at most {cap}; split it by concept")
        elif length <= cap:
            violations.append(f"{path}: {length} lines keep the cap of {cap}; take it off the allow-list")
        elif length > allowed[path]:
            violations.append(f"{path}: {length} lines, the allow-list says {allowed[path]} and may only shrink")
        elif length < allowed[path]:
            violations.append(f"{path}: shrank to {length} lines; lower its entry of {allowed[path]} in the allow-list")
    violations += [f"{path}: on the allow-list but not in the tree" for path in sorted(set(allowed) - set(tree.paths))]
    return violations


def parse_allow_list(text):
    """Returns {path: lines} of long_files.txt. A line of the file is `path lines`, and `#` begins a comment."""
    allowed = {}
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            path, length = line.split()
            allowed[path] = int(length)
    return allowed


def check_names(tree):
    """Checks that no file, folder or type is called util, helper, common, manager or misc. Files are snake_case."""
    violations = []
    for path in sorted(tree.paths):
        words = re.split(r"[/_.\-]", path.lower())
        banned = sorted(_BANNED_WORDS.intersection(words))
        if banned:
            violations.append(f"{path}: '{banned[0]}' names no concept")
    for path, text in tree.cxx():
        # The parts for Highway are compiled once per instruction set and are called foo-inl.h.
        if not re.fullmatch(r"[a-z0-9_]+(-inl\.h|\.(h|cc|cu|cuh))", posixpath.basename(path)):
            violations.append(f"{path}: file names are snake_case")
        for match in _BANNED_TYPE.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            violations.append(f"{path}:{line}: the type name {match.group(1)} names no concept")
    return violations


# Precompiled headers are compiled as main files, where GCC warns of #pragma once.
_COMPILED_ALONE = "tools/deps/precompiled/"


def check_headers(tree):
    """Checks that a header opens with a comment that describes it, and is guarded against double inclusion."""
    violations = []
    for path, text in tree.with_suffix(".h", ".cuh"):
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if not re.match(r"//\s*\w|/\*", first):
            violations.append(f"{path}:1: a header opens with a comment: what it is, what it is not, the thread rule")
        if path.endswith("-inl.h"):
            if "HWY_TARGET_TOGGLE" not in text:
                violations.append(f"{path}: included once per instruction set, so guarded by HWY_TARGET_TOGGLE")
        elif (not path.startswith(_COMPILED_ALONE) and "#pragma once" not in text
              and not re.search(r"^#ifndef \w+\n#define \w+", text, re.MULTILINE)):
            violations.append(f"{path}: not guarded against double inclusion (#pragma once)")
        if re.search(r"^\s*using namespace\b", text, re.MULTILINE):
            violations.append(f"{path}: 'using namespace' in a header")
    return violations


def check_marks(tree):
    """Checks that a mark left for later names its issue."""
    violations = []
    for path, text in sorted(tree.texts.items()):
        if path.endswith(".md"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = _ANY_MARK.search(line)
            if match and not _GOOD_MARK.match(match.group(0)):
                violations.append(f"{path}:{number}: write it as {_MARK}(#issue): what, and when it may go")
    return violations


def slugs_of(text):
    """Returns the anchors that code hosts make from the headings of a Markdown text."""
    slugs = set()
    seen = {}
    for match in _HEADING.finditer(_FENCE.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1))
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        slugs.add(f"{slug}-{count}" if count else slug)
    return slugs


def check_links(tree):
    """Checks that relative links in Markdown lead to a file, a folder or a heading that exists."""
    violations = []
    for path, text in tree.with_suffix(".md"):
        # The replacement blanks out fences and code spans, but keeps the line numbers.
        prose = _FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
        prose = re.sub(r"`[^`\n]*`", "", prose)
        for match in _LINK.finditer(prose):
            link = match.group(1) or match.group(2)
            line = prose.count("\n", 0, match.start()) + 1
            if re.match(r"[a-z][a-z0-9+.\-]*:", link):
                continue
            target, _, anchor = link.partition("#")
            if target.startswith("/"):
                violations.append(f"{path}:{line}: link {link} is absolute; count from the file")
                continue
            resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if resolved == ".":
                continue
            if resolved not in tree.paths and resolved not in tree.folders:
                violations.append(f"{path}:{line}: link {link} leads nowhere")
            elif anchor and resolved.endswith(".md") and anchor not in slugs_of(tree.texts.get(resolved, "")):
                violations.append(f"{path}:{line}: link {link}: {resolved} has no such heading")
    return violations


STYLE_RULES = [check_names, check_headers, check_marks, check_links]
