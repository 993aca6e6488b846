"""Holds the source tree as text for the layering rules.

A SourceTree maps repository paths ("sbp/layout.h") to the text of the files, so that a rule can be tried on a planted
tree as well as on the real one. A SourceTree does not ask git, so the rules also judge files that are not committed.
"""

import os
import re

# These folders at the root are no source: build outputs, downloads, version control.
_SKIPPED_ROOT = re.compile(r"^(bazel-.*|out|\.git|\.bazel|\.cache)$")
_SKIPPED_ANYWHERE = {"__pycache__", "node_modules"}
_TEXT_NAMES = {"BUILD", "WORKSPACE"}
_TEXT_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".bzl", ".md", ".sh")

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


class SourceTree:
    """A SourceTree holds repository paths and texts. The tree is immutable after its construction."""

    def __init__(self, texts, paths=None):
        """Makes a tree of files. `texts` maps a path to its text, for every file that a rule reads.

        `paths` lists every file that exists; the default is the paths of `texts`.
        """
        self.texts = dict(texts)
        self.paths = set(paths if paths is not None else texts)
        self.folders = set()
        for path in self.paths:
            folder = os.path.dirname(path)
            while folder:
                self.folders.add(folder)
                folder = os.path.dirname(folder)

    @staticmethod
    def read(root):
        """Reads the tree on disk below `root`."""
        texts = {}
        paths = set()
        for folder, folders, files in os.walk(root):
            relative = os.path.relpath(folder, root)
            relative = "" if relative == "." else relative + "/"
            folders[:] = [
                name for name in folders
                if name not in _SKIPPED_ANYWHERE and not (relative == "" and _SKIPPED_ROOT.match(name))
                and not os.path.islink(os.path.join(folder, name))
            ]
            for name in files:
                path = relative + name
                paths.add(path)
                if name in _TEXT_NAMES or name.endswith(_TEXT_SUFFIXES) or _is_script(os.path.join(folder, name)):
                    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                        texts[path] = file.read()
        return SourceTree(texts, paths)

    def with_suffix(self, *suffixes):
        """Returns (path, text) of the files whose names end with one of the suffixes, in path order."""
        return [(path, text) for path, text in sorted(self.texts.items()) if path.endswith(suffixes)]

    def cxx(self):
        """Returns (path, text) of every C++ and CUDA file."""
        return self.with_suffix(".h", ".cc", ".cu", ".cuh")


def includes_of(text):
    """Returns [(line number, quote, included path)] of a C++ text. `quote` is '"' or '<'."""
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1), match.group(2))
            for match in _INCLUDE.finditer(text)]


def _is_script(path):
    if "." in os.path.basename(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
