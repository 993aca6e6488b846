"""Checks that targets are private, unless a BUILD file states who uses them.

A rule has the same shape as in include_rules: it takes a SourceTree and returns violations.
"""

import posixpath
import re

_PUBLIC = "//visibility:public"
_REASON = "# Public: "  # begins the comment that says why a target is public
_LINES_ABOVE = 4
# Macros use the targets of this folder in every package, and no BUILD file names them.
_OF_MACROS = "tools/deps/"

_CALL = re.compile(r"^(?=\[?[a-z_]+\($)", re.MULTILINE)
_NAME = re.compile(r'^    name = "([^"]+)",$', re.MULTILINE)
_VISIBILITY = re.compile(r"^    visibility = \[([^\]]*)\]", re.MULTILINE)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def _build_files(tree):
    """Returns {package: text} of all BUILD files."""
    return {posixpath.dirname(path): text for path, text in tree.texts.items() if posixpath.basename(path) == "BUILD"}


def check_targets_are_private(tree):
    """Checks that no package makes all its targets visible, and that a public target says why in a comment above."""
    violations = []
    for package, text in sorted(_build_files(tree).items()):
        lines = text.splitlines()
        for number, line in enumerate(lines):
            has_reason = any(_REASON in above for above in lines[max(0, number - _LINES_ABOVE):number])
            if _PUBLIC in line and not has_reason:
                violations.append(f"{package}/BUILD:{number + 1}: public; list the packages that use the target, or say "
                                  f"why in a comment above (`{_REASON}...`)")
            elif "default_visibility" in line and _PUBLIC not in line and not package.startswith(_OF_MACROS):
                violations.append(f"{package}/BUILD:{number + 1}: a default for all targets; each target lists its own "
                                  "users")
    return violations


def _labels_of(package, name):
    """Returns how other BUILD files can write the label of a target; a proto library brings its sources."""
    short = [f'"//{package}"'] if posixpath.basename(package) == name else []
    return short + [f"//{package}:{name}", f"//{package}:{name}_sources"]


def _names_one(text, labels):
    return any(re.search(re.escape(label) + r'(?![\w./])', text) for label in labels)


def check_visibility_names_users(tree):
    """Checks that each package in the visibility of a target uses the target."""
    violations = []
    builds = {package: _COMMENT.sub("", text) for package, text in _build_files(tree).items()}
    for package, text in sorted(builds.items()):
        if package.startswith(_OF_MACROS):
            continue
        for call in _CALL.split(text):
            name, visibility = _NAME.search(call), _VISIBILITY.search(call)
            if not name or not visibility:
                continue
            labels = _labels_of(package, name.group(1))
            for entry in re.findall(r'"//([^":]+):(__pkg__|__subpackages__)"', visibility.group(1)):
                folder, reach = entry
                users = [other for other in builds if other == folder
                         or (reach == "__subpackages__" and other.startswith(folder + "/"))]
                if not any(other != package and _names_one(builds[other], labels) for other in users):
                    violations.append(f"{package}/BUILD: {name.group(1)} is visible to //{folder}:{reach}, where no "
                                      "package uses it")
    return violations


VISIBILITY_RULES = [check_targets_are_private, check_visibility_names_users]
