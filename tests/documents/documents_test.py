"""Tests that every command in README.md and docs/ works.

A command runs in this test, or the document says beside the command why it does not run. Each document is a test of its
own. The commands of a document run in their order in one folder, so that a later command finds the files of an earlier
one. The test reads the tree through its own place in the checkout and not through declared data. The test is therefore
tagged `external`, and Bazel runs it every time.
"""

import os
import re
import shlex
import sys
import unittest

from tests.documents import markdown_blocks
from tests.documents.document_session import DocumentSession

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
WEIR = os.path.abspath(os.environ.get("WEIR", "tools/weir"))
COMMAND = re.compile(r"(?:\$ )?(?:weir|bazel|tools/\S+) ")
LABEL = re.compile(r"//([\w/.-]*)(?::([\w.-]+))?")


def documents():
    """Returns the paths of all documents, from the root of the tree."""
    found = ["README.md"]
    for folder, _, names in os.walk(os.path.join(ROOT, "docs")):
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".md")]
    return sorted(found)


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def target_exists(package, name):
    """Returns whether the BUILD file of a package defines a target, even if a loop makes the name of the target."""
    build = os.path.join(ROOT, package, "BUILD")
    if not os.path.exists(build):
        return False
    if name in ("all", "", "..."):
        return True
    for defined in re.findall(r'name = "([^"]+)"', text_of(os.path.join(package, "BUILD"))):
        if re.fullmatch(re.escape(defined).replace("%s", r"\w+"), name):
            return True
    return False


class DocumentsTest(unittest.TestCase):
    def run_document(self, path):
        session = DocumentSession(ROOT, WEIR)
        try:
            for block in markdown_blocks.read_blocks(text_of(path)):
                self.run_block(session, path, block)
        finally:
            session.close()

    def run_block(self, session, path, block):
        for text in block.prepare:
            code, output = session.run(text)
            self.assertEqual(code, 0, f"{path}:{block.line}: to prepare: {text}\n" + "\n".join(output))
        if block.file:
            session.write(block.file, block.content())
        if block.not_run:
            return
        for command in block.commands():
            if command.text.startswith("bazel "):
                continue  # check_labels checks these commands
            code, output = session.run(command.text)
            shown = f"{path}:{command.line}: {command.text}\n" + "\n".join(output)
            self.assertEqual(code, command.exit_code, shown)
            if command.output:
                missing = markdown_blocks.first_difference(command.output, output)
                self.assertIsNone(
                    missing, f"the document shows this line, the command does not print it: {missing}\n{shown}")

    def check_commands_are_marked(self, path):
        for block in markdown_blocks.read_blocks(text_of(path)):
            if block.language in ("sh", "console"):
                continue
            # A line that is not ASCII belongs to a drawing.
            commands = [line for line in block.lines if COMMAND.match(line) and line.isascii()]
            self.assertEqual(commands, [],
                             f"{path}:{block.line}: begin this block with ```sh or ```console, so that it is run")

    def check_labels(self, path):
        """Checks that each `bazel build|test|run LABEL` names a target that exists."""
        for number, line in enumerate(text_of(path).splitlines(), 1):
            for command in re.findall(r"bazel (?:build|test|run) ([^`#|]*)", line):
                for package, name in LABEL.findall(command):
                    if package.endswith("..."):
                        exists = os.path.isdir(os.path.join(ROOT, package[:-3]))
                    else:
                        exists = target_exists(package, name or os.path.basename(package))
                    self.assertTrue(exists, f"{path}:{number}: no such target: //{package}:{name}")

    def check_flags(self, session, path):
        """Checks that the program's help lists the flags of commands that are not run."""
        helps = {}
        for block in markdown_blocks.read_blocks(text_of(path)):
            if not block.not_run:
                continue
            for command in block.commands():
                for words in self.simple_commands(command.text):
                    self.check_flags_of(session, helps, f"{path}:{command.line}", words)

    @staticmethod
    def simple_commands(text):
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        for word in lexer:
            if word and set(word) <= set("|&;()<>"):
                yield words
                words = []
            else:
                words.append(word)
        yield words

    def check_flags_of(self, session, helps, place, words):
        if not words or not (words[0] == "weir" or words[0].startswith("tools/")):
            return
        asked = (words[:1] + [word for word in words[1:3] if re.fullmatch(r"[a-z]+", word)]
                 if words[0] == "weir" else words[:1])
        if tuple(asked) not in helps:
            code, output = session.run(shlex.join([*asked, "--help"]))
            if code != 0 and len(asked) == 3:
                asked = asked[:2]
                code, output = session.run(shlex.join([*asked, "--help"]))
            self.assertEqual(code, 0, f"{place}: {' '.join(asked)} --help")
            helps[tuple(asked)] = "\n".join(output)
        for word in words[1:]:
            flag = word.split("=")[0]
            if re.fullmatch(r"--[a-z][a-z-]+", flag) and flag != "--help":
                self.assertRegex(helps[tuple(asked)], rf"{flag}\b", f"{place}: unknown flag {flag}")


def _add(path):
    def run(self):
        self.run_document(path)

    def read(self):
        self.check_commands_are_marked(path)
        self.check_labels(path)
        session = DocumentSession(ROOT, WEIR)
        try:
            self.check_flags(session, path)
        finally:
            session.close()

    name = re.sub(r"\W", "_", path)
    run.__doc__ = f"{path}: its commands work and print what it shows"
    read.__doc__ = f"{path}: its commands are marked, their targets and flags exist"
    if any(block.commands() or block.file for block in markdown_blocks.read_blocks(text_of(path))):
        setattr(DocumentsTest, "test_run_" + name, run)
    setattr(DocumentsTest, "test_read_" + name, read)


for _path in documents():
    if not _path.startswith("docs/errors/"):
        _add(_path)

if __name__ == "__main__":
    sys.exit(unittest.main())
