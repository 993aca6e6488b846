"""Tests `weir generate` in several processes: the tokens of one process, and how a disturbed run ends."""

import json
import os
import signal
import unittest

from tests.processes import weir_jobs

WINDOW = 16  # of weir_jobs.SMALL
PROMPTS = ("--prompt", "abcde", "--prompt", "x", "--temperature", "1", "--top-k", "40", "--json")


class Generate(weir_jobs.JobCase):
    def setUp(self):
        super().setUp()
        self.write_job()
        self.place.train("--steps", "3", "--save", "w.safetensors")

    def start(self, *arguments):
        init = () if "--init" in arguments else ("--init", "w.safetensors")
        return self.place.start(*init, *arguments, verb="generate")

    def tokens(self, *arguments):
        ended = self.start(*PROMPTS, *arguments).wait()
        self.assertEqual(ended.code, 0, ended.err)
        return [json.loads(line)["tokens"] for line in ended.out.splitlines()]

    def write_prompts(self, *lengths):
        with open(self.place.path("prompts.jsonl"), "w", encoding="utf-8") as prompts:
            for length in lengths:
                prompts.write(json.dumps([65 + length] * length) + "\n")

    def test_every_layout_in_two_processes_says_what_one_device_says_and_leaves_no_logs(self):
        for count in (8, WINDOW):  # within the window, and past its end, where whole windows are computed
            alone = self.tokens("--max-tokens", str(count))
            self.assertEqual([len(tokens) for tokens in alone], [count, count])
            for mesh in ("tp=2", "pp=2", "dp=2", "dp=2,tp=2"):
                with self.subTest(mesh=mesh, count=count):
                    self.assertEqual(
                        self.tokens("--max-tokens", str(count), "--mesh", mesh, "--processes", "2"), alone)
        self.assertFalse(os.path.exists(self.place.path("weir-logs")))

    def test_prompts_that_share_few_rows_and_few_pages_say_what_they_say_alone(self):
        self.write_prompts(3, 12, 1, 7, 20, 2, 9)
        options = ("--prompt-ids", "prompts.jsonl", "--temperature", "1", "--max-tokens", "4", "--stats")
        alone = self.start(*options, "--batch", "1").wait()
        self.assertEqual(alone.code, 0, alone.err)
        self.assertEqual([json.loads(line)["prompt"] for line in alone.out.splitlines()], list(range(7)))
        for flags in (("--batch", "3"), (), ("--batch", "3", "--mesh", "dp=2", "--processes", "2"),
                      ("--batch", "4", "--cache-tokens", "40", "--mesh", "tp=2", "--processes", "2")):
            with self.subTest(flags=flags):
                ended = self.start(*options, *flags).wait()
                self.assertEqual(ended.out, alone.out, ended.err)
                self.assertRegex(ended.err, r"of \d+ pages of 16 positions, at most \d+ in use")

    def test_a_sequence_that_gives_its_pages_back_says_in_two_processes_what_it_says_alone(self):
        model = list(weir_jobs.SMALL)
        model[model.index("--sequence") + 1] = "48"  # three pages
        self.place.write_job(*model)
        self.place.train("--steps", "3", "--save", "wide.safetensors")
        self.write_prompts(3, 20, 1, 20, 30, 2, 9)
        options = ("--init", "wide.safetensors", "--prompt-ids", "prompts.jsonl", "--temperature", "1",
                   "--max-tokens", "14", "--stats")
        alone = self.start(*options, "--batch", "1").wait()
        self.assertEqual(alone.code, 0, alone.err)
        self.assertIn("the first of 1 prompt in", alone.err)
        for mesh, tokens in (("tp=2", 48), ("dp=2", 96), ("dp=2", None)):
            with self.subTest(mesh=mesh, tokens=tokens):
                pool = () if tokens is None else ("--cache-tokens", str(tokens))
                ended = self.start(*options, "--batch", "4", "--mesh", mesh, "--processes", "2", *pool).wait()
                self.assertEqual(ended.out, alone.out, ended.err)
                if tokens is None:
                    self.assertNotIn("read again", ended.err)
                else:
                    self.assertRegex(ended.err, r"\d+ times? a sequence was read again")

    def test_the_stats_of_a_run_without_tokens_have_no_time_of_the_first_ones(self):
        ended = self.start(*PROMPTS, "--max-tokens", "0", "--stats").wait()
        self.assertEqual(ended.code, 0, ended.err)
        self.assertRegex(ended.err, r"0 tokens in \S+ s; 0 with the cache")

    def test_averages_of_a_checkpoint_generate_and_train_in_every_process(self):
        self.place.train("--steps", "3", "--checkpoint", "run/", "--set", "training.average.decay=0.5",
                         "--set", "training.schedule.learning_rate=0.1")
        self.place.run("checkpoint", "export", "run", "--average", "-o", "averaged.safetensors")
        of_file = self.tokens("--init", "averaged.safetensors", "--max-tokens", "8")
        averages = ("--init", "run/", "--average", "--max-tokens", "8")
        self.assertEqual(self.tokens(*averages), of_file)
        self.assertEqual(self.tokens(*averages, "--mesh", "tp=2", "--processes", "2"), of_file)
        self.assertNotEqual(self.tokens("--init", "run/", "--max-tokens", "8"), of_file)
        two = ("--mesh", "tp=2", "--processes", "2", "--steps", "2")
        self.place.train(*two, "--init", "averaged.safetensors", "--save", "of_file.st")
        self.place.train(*two, "--init", "run/", "--average", "--save", "of_averages.st")
        self.assertTrue(self.place.bytes_of("of_averages.st") == self.place.bytes_of("of_file.st"))

    def test_a_sequence_ends_with_the_token_ids_of_a_stop(self):
        alone = self.tokens("--max-tokens", "8")
        stop = ",".join(map(str, alone[0][2:4]))
        stopped = self.tokens("--max-tokens", "8", "--mesh", "tp=2", "--processes", "2", "--stop-ids", stop)
        self.assertEqual(stopped[0], alone[0][:4])

    def test_a_worker_that_is_killed_is_named_and_nothing_is_left(self):
        job = self.start("--prompt", "a", "--max-tokens", "1000000", "--mesh", "tp=2", "--processes", "2")
        job.wait_for_text("the longest sequence")  # the ranks are loaded
        os.kill(job.wait_for_workers(2)["1"], signal.SIGKILL)
        ended = job.wait()
        self.assertEqual(ended.code, 128 + signal.SIGKILL)
        self.assertEqual(ended.first_failure()[0], "1", ended.err)
        self.assertEqual(self.place.processes(), [])

    def test_an_interrupted_run_ends_in_order_with_what_there_is(self):
        job = self.start("--prompt", "a", "--max-tokens", "1000000", "--mesh", "tp=2", "--processes", "2", "--json")
        job.wait_for_text("the longest sequence")
        job.starter.send_signal(signal.SIGINT)
        ended = job.wait()
        self.assertEqual(ended.code, 130)
        self.assertEqual(json.loads(ended.out)["end"], "interrupted")
        self.assertNotIn("failure", ended.err)


if __name__ == "__main__":
    unittest.main()
