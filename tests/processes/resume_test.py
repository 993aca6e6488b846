"""Tests that a checkpoint of any layout resumes under any other, whatever the number of processes.

Each of eight layouts trains without an interruption, and trains a part and saves. Each checkpoint is then resumed under
five of the layouts: under its own it gives the losses of the uninterrupted run bit for bit, under another within the
order of sums. One process has tests/training/resume_matrix_test.cc.
"""

import unittest

from tests.processes import weir_jobs

SAVED, STEPS = 2, 4
TARGETS = 5  # of each checkpoint, its own layout among them
TOLERANCE = 1e-5
# Products of bf16 have 8 bits, so the losses of a run with them are near, and no more.
TOLERANCE_BF16 = 0.03

# (mesh, ZeRO stage, sequence parallelism, processes)
LAYOUTS = (("dp=1", 0, "none", 1), ("dp=4", 0, "none", 4), ("tp=2", 0, "none", 2), ("pp=2", 0, "none", 2),
           ("dp=2", 1, "none", 2), ("dp=2,tp=2", 3, "megatron", 4), ("sp=2", 0, "ulysses", 2),
           ("dp=2,pp=2", 2, "none", 3))


class Resume(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        for number, (_, zero, sequence, _) in enumerate(LAYOUTS):
            # The schedule does not depend on the number of steps.
            self.place.write_job(*weir_jobs.SMALL, "--min-lr", "0.003", "--zero", str(zero), "--sequence-parallel",
                                 sequence, job=self.job(number))

    @staticmethod
    def job(number):
        return f"job{number}.textproto"

    def losses(self, number, steps, *options, job=None):
        """Trains under a layout and returns {step: loss}."""
        mesh, _, _, processes = LAYOUTS[number]
        self.place.remove("m.jsonl")
        self.place.train("--mesh", mesh, "--processes", str(processes), "--threads", "1", "--steps", str(steps),
                         "--metrics", "m.jsonl", *options, job=job or self.job(number))
        return {row["step"]: row["loss"] for row in self.place.metrics("m.jsonl")}

    def expect_near(self, losses, expected, tolerance):
        for step, loss in losses.items():
            self.assertLessEqual(abs(loss - expected[step]), tolerance * abs(expected[step]), f"step {step}")

    def test_a_checkpoint_of_any_layout_resumes_under_any_other(self):
        whole = [self.losses(number, STEPS) for number in range(len(LAYOUTS))]
        resumes = 0
        for source in range(len(LAYOUTS)):
            self.losses(source, SAVED, "--checkpoint", f"from{source}/")
            for offset in range(TARGETS):
                target = (source + offset) % len(LAYOUTS)
                with self.subTest(source=LAYOUTS[source], target=LAYOUTS[target]):
                    resumed = self.losses(target, STEPS, "--resume", f"from{source}")
                    resumes += 1
                    self.assertEqual(list(resumed), list(range(SAVED + 1, STEPS + 1)))
                    self.expect_near(resumed, whole[0], TOLERANCE)
                    if target == source:
                        self.assertEqual(resumed, {step: whole[source][step] for step in resumed}, "not the same bits")
        self.assertGreaterEqual(resumes, 36)

    def test_a_checkpoint_of_f32_resumes_under_bf16(self):
        whole = self.losses(4, STEPS)
        self.losses(4, SAVED, "--checkpoint", "f32/")
        self.place.write_job(*weir_jobs.SMALL, "--min-lr", "0.003", "--precision", "bf16", job="bf16.textproto")
        resumed = self.losses(2, STEPS, "--resume", "f32", job="bf16.textproto")
        self.assertEqual(list(resumed), list(range(SAVED + 1, STEPS + 1)))
        self.expect_near(resumed, whole, TOLERANCE_BF16)
        self.assertNotEqual(resumed, {step: whole[step] for step in resumed}, "the products are those of f32")


if __name__ == "__main__":
    unittest.main()
