"""Runs the program `weir` on every spoilt job and checks the exit code and the message.

A crash, a hang (TIMEOUT_S) or a large need for memory (MEMORY_BYTES) fails the test. A message without its place fails
the test, too.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

from tests.bad_input import bad_files
from tests.bad_input import bad_input_cases

FOLDER = os.path.dirname(os.path.abspath(__file__))
WEIR = os.path.abspath(os.environ.get("WEIR", "tools/weir"))
TIMEOUT_S = 60
MEMORY_BYTES = 8 << 30
USAGE = 2
# Training says so before a search, whose refusal is the same in both.
SEARCHING = "searching for rules (rules: AUTO)\n"
CHECK_ALONE = {"--no-data", "--any-machine"}  # flags that train lacks


def _limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def unwrapped(message):
    """Joins the lines that were broken to fit the width."""
    return re.sub(r"\n +", " ", message)


# SOURCE matches the place of an error in the job file or on the command line. A message names this place before the
# place in the job.
SOURCE = re.compile(r"(W\d{4}) at (?:\S+\.textproto(?::\d+)+|--(?:set|mesh) \S+), ")


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        with open(os.path.join(FOLDER, "good.textproto"), encoding="utf-8") as file:
            cls.good = file.read()
        bad_files.write_files(cls.folder.name, cls.good)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_weir(self, arguments, job):
        with open(os.path.join(self.folder.name, "job.textproto"), "w", encoding="utf-8") as file:
            file.write(job)
        words = [WEIR] + [word.replace("JOB", "job.textproto") for word in arguments]
        return subprocess.run(words, cwd=self.folder.name, capture_output=True, timeout=TIMEOUT_S, check=False,
                              preexec_fn=_limit_memory)

    def check(self, case):
        result = self.run_weir(case.arguments, case.job)
        message = unwrapped(result.stderr.decode("utf-8"))  # strict, because a message is text
        self.assertEqual(result.returncode, case.exit_code, f"{case.reason}\n{message}")
        self.assertTrue(message.startswith("weir") or "\nweir: W" in message, message)
        in_the_job = SOURCE.sub(r"\1 at ", message)
        for text in case.contains:
            self.assertTrue(text in message or text in in_the_job, f"{text}\nis not in\n{message}")
        code = re.match(r"weir: (W\d{4}) ", message)
        if code is not None:
            self.assertTrue(message.rstrip().endswith(f"See: weir explain {code.group(1)}"), message)
        if case.exit_code != USAGE:
            self.assertRegex(message, r"(?m)^weir: W\d{4} at .+: expected .+; found ")
        self.assertNotIn("\x1b", message)
        self.assertLess(len(message), 5000)

    def test_the_good_job_is_sound_and_trains(self):
        for arguments in (["check", "JOB"], ["train", "JOB"], ["train", "JOB", "--init", "good.safetensors"]):
            result = self.run_weir(arguments, self.good)
            self.assertEqual(result.returncode, 0, result.stderr.decode())

    def test_what_train_refuses_at_its_start_check_refuses_with_the_same_words(self):
        compared = 0
        for case in bad_input_cases.read_cases(FOLDER):
            if (case.arguments[0] not in ("check", "train") or case.exit_code == USAGE
                    or CHECK_ALONE.intersection(case.arguments)):
                continue
            with self.subTest(case=case.name):
                answers = [self.run_weir([verb] + case.arguments[1:], case.job) for verb in ("train", "check")]
                trained, checked = ((answer.returncode, answer.stderr.decode().removeprefix(SEARCHING))
                                    for answer in answers)
                self.assertEqual(trained[0], case.exit_code, trained[1])
                self.assertNotIn("step 1/", trained[1], "it trained before it refused")
                self.assertEqual(checked, trained, "check and train disagree")
                compared += 1
        self.assertGreater(compared, 150)

    def test_a_broken_description_of_a_case_is_refused(self):
        for text in ("- no such line\n! 65\n! W", "? what\n", "# reason\n+ x\n! 65\n", "# reason\n+ x\n! W0001\n"):
            with self.assertRaises(ValueError):
                bad_input_cases.parse_case("broken", text, self.good.splitlines())


def _add(case):
    def test(self):
        self.check(case)

    test.__doc__ = case.reason
    setattr(BadInputTest, "test_" + case.name, test)


for _case in bad_input_cases.read_cases(FOLDER):
    _add(_case)

if __name__ == "__main__":
    sys.exit(unittest.main())
