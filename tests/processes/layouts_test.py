"""Tests that the number of processes and the transport do not change the answer.

Every layout of tests/training/layout_matrix_test.cc gives the weights, losses and evaluations of the same layout in one
process, bit for bit. Every pipeline schedule does so, too.

The argument is gpt or llama.
"""

import sys
import unittest

from tests.processes import weir_jobs

PROCESSES = (1, 2, 4)
TRANSPORTS = ("shm", "tcp")
MODEL = "gpt"


def layouts():
    """Returns a list of (mesh, ZeRO stage, sequence parallelism)."""
    found = [(mesh, 0, "none") for mesh in ("dp=2", "dp=3", "dp=4", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2",
                                            "dp=2,pp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2")]
    found += [(mesh, zero, "none") for mesh in ("dp=2", "dp=4", "dp=2,tp=2", "dp=2,pp=2") for zero in (1, 2, 3)]
    return found + [("tp=2", 0, "megatron"), ("dp=2,tp=2", 3, "megatron"), ("sp=2", 0, "ulysses"),
                    ("sp=2,tp=2", 0, "ulysses"), ("dp=2,sp=2,pp=2", 1, "ulysses"), ("tp=3", 0, "none")]


def num_ranks(mesh):
    count = 1
    for axis in mesh.split(","):
        count *= int(axis.partition("=")[2])
    return count


def ways(mesh):
    """Returns a list of (processes, transport). One process talks to no other process, so one transport is enough."""
    return [(count, transport) for count in PROCESSES if count <= num_ranks(mesh)
            for transport in (TRANSPORTS if count > 1 else TRANSPORTS[:1])]


def alternate_ways(mesh, number):
    """Returns one of the `ways` for each number of processes. The next layout, `number` + 1, has the other transport."""
    return [(count, TRANSPORTS[(number + count // 2) % 2]) for count in PROCESSES if count <= num_ranks(mesh)]


class Layouts(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.place.write_text()

    def write_job(self, *options):
        self.place.write_job(*weir_jobs.SMALL, "--steps", "12", "--data", "text.txt", "--held-out", "0.2",
                             "--eval-every", "5", *options, model=MODEL)

    def train(self, name, *arguments):
        self.place.remove(f"{name}.jsonl")  # a resumed run adds to this file
        self.place.train("--metrics", f"{name}.jsonl", "--save", f"{name}.st", *arguments)

    def expect_same(self, name, other):
        self.assertEqual(self.place.metrics(f"{name}.jsonl"), self.place.metrics(f"{other}.jsonl"))
        self.assertTrue(self.place.bytes_of(f"{name}.st") == self.place.bytes_of(f"{other}.st"),
                        f"{name} and {other} differ")

    def test_every_layout_gives_the_same_bits_in_any_number_of_processes(self):
        for number, (mesh, zero, sequence) in enumerate(layouts()):
            self.write_job("--zero", str(zero), "--sequence-parallel", sequence)
            self.train("one", "--mesh", mesh)
            rows = self.place.metrics("one.jsonl")
            self.assertEqual(sum("loss" in row for row in rows), 12)
            self.assertTrue(any("eval_loss" in row for row in rows))
            for count, transport in alternate_ways(mesh, number):
                with self.subTest(mesh=mesh, zero=zero, sequence=sequence, processes=count, transport=transport):
                    self.train("many", "--mesh", mesh, "--processes", str(count), "--transport", transport)
                    self.expect_same("many", "one")

    def test_every_pipeline_schedule_gives_the_same_bits_in_two_processes(self):
        self.write_job()
        pipeline = ("--mesh", "pp=2", "--set", "training.micro_batches=6")
        self.train("default", *pipeline)
        for schedule in ("ONE_F_ONE_B", "GPIPE", "INTERLEAVED", "ZERO_BUBBLE"):
            with self.subTest(schedule=schedule):
                chosen = (*pipeline, "--set", f"pipeline.schedule={schedule}")
                self.train("one", *chosen)
                self.train("many", *chosen, "--processes", "2")
                self.expect_same("many", "one")
                self.expect_same("one", "default")

    def test_updates_in_every_third_step_by_older_gradients_are_the_same_bits_in_any_number_of_processes(self):
        for mesh, zero in (("dp=2,pp=2", "1"), ("dp=2,tp=2", "3"), ("tp=2,pp=2", "0")):
            self.write_job("--zero", zero, "--update-every", "3", "--gradient-delay", "1")
            self.train("one", "--mesh", mesh)
            self.assertEqual(sum("grad_norm" in row for row in self.place.metrics("one.jsonl")), 4)
            for count, transport in ways(mesh):
                with self.subTest(mesh=mesh, zero=zero, processes=count, transport=transport):
                    self.train("many", "--mesh", mesh, "--processes", str(count), "--transport", transport)
                    self.expect_same("many", "one")
            with self.subTest(mesh=mesh, zero=zero, resumed=True):
                self.place.train("--mesh", mesh, "--processes", "2", "--steps", "8", "--checkpoint", "half.st")
                self.train("rest", "--mesh", mesh, "--processes", "4", "--resume", "half.st")
                self.assertTrue(self.place.bytes_of("rest.st") == self.place.bytes_of("one.st"))

    def test_a_checkpoint_goes_on_in_another_number_of_processes(self):
        self.write_job("--zero", "1", "--min-lr", "0.003")  # a rate that does not depend on the number of steps
        mesh = ("--mesh", "dp=2,pp=2")
        self.train("through", *mesh)
        for first, then in ((None, 4), (4, 2), (2, None), (2, 1)):
            with self.subTest(first=first, then=then):
                halves = [("--processes", str(count)) if count else () for count in (first, then)]
                self.place.train(*mesh, *halves[0], "--steps", "6", "--checkpoint", "half.st")
                self.train("rest", *mesh, *halves[1], "--resume", "half.st")
                self.assertEqual(self.place.metrics("rest.jsonl"), self.place.metrics("through.jsonl")[6:])
                self.assertTrue(self.place.bytes_of("rest.st") == self.place.bytes_of("through.st"))

    def test_training_starts_from_the_same_weights_in_any_number_of_processes(self):
        self.write_job()
        self.train("start", "--mesh", "tp=4", "--seed", "7")
        self.train("one", "--mesh", "dp=2,tp=2", "--init", "start.st")
        for count, transport in ways("dp=2,tp=2"):
            with self.subTest(processes=count, transport=transport):
                self.train("many", "--mesh", "dp=2,tp=2", "--init", "start.st", "--processes", str(count),
                           "--transport", transport)
                self.expect_same("many", "one")


if __name__ == "__main__":
    MODEL = sys.argv.pop(1)
    unittest.main()
