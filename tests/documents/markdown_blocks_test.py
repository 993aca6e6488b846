"""Tests which lines tests/documents takes for commands, and which outputs agree with the shown output."""

import unittest

from tests.documents import markdown_blocks


class MarkdownBlocksTest(unittest.TestCase):
    def test_a_script_has_a_command_per_line_without_its_comment(self):
        block, = markdown_blocks.read_blocks("```sh\nweir ops    # all of them\n\nweir train j \\\n  --steps 3\n```\n")
        self.assertEqual([(c.text, c.line) for c in block.commands()], [("weir ops", 2), ("weir train j --steps 3", 4)])

    def test_a_session_has_commands_with_their_output(self):
        block, = markdown_blocks.read_blocks("```console\n$ weir check j\nj is sound\n$ true\n```\n")
        self.assertEqual([(c.text, c.output) for c in block.commands()],
                         [("weir check j", ["j is sound"]), ("true", [])])

    def test_notes_belong_to_the_block_below(self):
        text = ("<!-- prepare: touch x -->\n<!-- exit: 65 -->\n```sh\nweir check x\n```\n"
                "<!-- not run: it takes an hour -->\n```sh\ntools/bench\n```\n")
        first, second = markdown_blocks.read_blocks(text)
        self.assertEqual((first.prepare, first.commands()[-1].exit_code, first.not_run), (["touch x"], 65, ""))
        self.assertEqual((second.prepare, second.not_run), ([], "it takes an hour"))

    def test_a_block_can_be_a_file(self):
        block, = markdown_blocks.read_blocks("```textproto file=min.textproto\nname: \"min\"\n```\n")
        self.assertEqual((block.file, block.content(), block.commands()), ("min.textproto", 'name: "min"\n', []))

    def test_mistakes_are_told_with_their_line(self):
        for text in ("```sh\nweir ops\n", "<!-- exit: 65 -->\nSome words.\n", "```console\nno command\n```\n",
                     "```sh quick\n```\n"):
            with self.assertRaisesRegex(ValueError, "line [12]:"):
                for block in markdown_blocks.read_blocks(text):
                    block.commands()

    def test_numbers_and_columns_may_differ_and_words_may_not(self):
        self.assertIsNone(markdown_blocks.first_difference(["loss  2.31, 1,000 steps"], ["loss 2.4,  64 steps"]))
        self.assertIsNone(markdown_blocks.first_difference(["1.2k samples/s  950ms left"], ["64 samples/s  1.1s left"]))
        self.assertIsNone(markdown_blocks.first_difference(["took 9.5s, 950ms left"], ["took 1m04s, 1h12m left"]))
        self.assertEqual(markdown_blocks.first_difference(["loss 2.31"], ["cost 2.31"]), "loss 2.31")

    def test_an_ellipsis_stands_for_any_lines(self):
        actual = ["a", "b", "c", "d"]
        self.assertIsNone(markdown_blocks.first_difference(["a", "…", "d"], actual))
        self.assertIsNone(markdown_blocks.first_difference(["…", "c", "…"], actual))
        self.assertIsNone(markdown_blocks.first_difference(["…", "step 9", "end"], ["step 1", "step 2", "end"]))
        self.assertEqual(markdown_blocks.first_difference(["a", "b"], actual), "(the end)")
        self.assertEqual(markdown_blocks.first_difference(["…", "e"], actual), "e")
        self.assertEqual(markdown_blocks.first_difference(["a", "d"], actual), "d")


if __name__ == "__main__":
    unittest.main()
