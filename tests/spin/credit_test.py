"""Tests credit.pml with SPIN, which explores every interleaving.

The protocol holds and ends, and SPIN finds each planted error.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

MODEL = os.path.abspath(os.path.join(os.path.dirname(__file__), "credit.pml"))
DEPTH = "-m100000"

# PLANTED lists each macro of credit.pml that plants an error, and how the checker must find the error.
ASSERTION = "assertion violated"
STUCK = "invalid end state"
PLANTED = {
    "CREDIT_BEFORE_READ": ASSERTION,
    "CREDIT_OF_FIRST_READER": ASSERTION,
    "CREDIT_LOST": STUCK,
    "CREDIT_TOO_MANY": ASSERTION,
    "FENCE_MISSING": ASSERTION,
    "ORDER_UNCHECKED": ASSERTION,
    "TWICE_ACCEPTED": ASSERTION,
    "ABORT_UNHEARD": STUCK,
    "TOKEN_BEFORE_WRITE": ASSERTION,
}


def check(macros, compiler_options, checker_options):
    """Returns the output of the checker of the model."""
    with tempfile.TemporaryDirectory() as folder:
        for command in (
            ["spin", *[f"-D{macro}" for macro in macros], "-a", MODEL],
            ["gcc", "-w", *compiler_options, "-o", "pan", "pan.c"],
        ):
            made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}:\n{made.stdout}{made.stderr}")
        run = subprocess.run(["./pan", DEPTH, *checker_options], cwd=folder, capture_output=True, text=True,
                             check=False)
    if "errors: " not in run.stdout or "max search depth too small" in run.stdout:
        raise RuntimeError(f"the search was not complete:\n{run.stdout}{run.stderr}")
    return run.stdout


def num_errors(output):
    return int(re.search(r"errors: (\d+)", output).group(1))


class CreditProtocolTest(unittest.TestCase):

    def test_no_interleaving_breaks_an_invariant_or_gets_stuck(self):
        output = check([], ["-O2", "-DSAFETY", "-DCOLLAPSE"], ["-w22"])
        self.assertEqual(num_errors(output), 0, output)
        # A model whose abort or repetition cannot happen would prove little.
        unreached = re.findall(r"unreached in (?:proctype|init) (\w+)\n((?:\t.*\n)*)", output)
        self.assertEqual(len(unreached), 7, output)
        for process, states in unreached:
            self.assertTrue(states.startswith("\t(0 of "), f"{process} never does:\n{states}")

    def test_every_fair_run_ends(self):
        output = check(["PROGRESS", "TOKENS=2"], ["-O2", "-DNFAIR=3"], ["-a", "-f"])
        self.assertEqual(num_errors(output), 0, output)

    def test_a_protocol_that_may_wait_for_ever_is_rejected_by_the_proof_of_ending(self):
        output = check(["PROGRESS", "TOKENS=2", "ABORT_UNHEARD"], ["-O2", "-DNFAIR=3"], ["-a", "-f", "-E"])
        self.assertIn("acceptance cycle", output)

    def test_each_planted_error_is_found(self):
        with open(MODEL, encoding="utf-8") as model:
            named = set(re.findall(r"#(?:if|ifdef|ifndef) ([A-Z_]+)", model.read())) - {"SLOTS", "TOKENS", "PROGRESS"}
        self.assertEqual(named, set(PLANTED), "every switch of the model is tried here")
        for macro, how in PLANTED.items():
            with self.subTest(macro):
                output = check([macro], ["-O1", "-DSAFETY"], [])
                self.assertEqual(num_errors(output), 1, output)
                self.assertIn(how, output)


if __name__ == "__main__":
    sys.exit(unittest.main())
