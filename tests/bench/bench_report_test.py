"""Tests that the table of a bench agrees with the samples."""

import unittest

from tests.bench import bench_report


def row(ours, theirs, better="lower", limit=1.0):
    made = {"what": "w", "unit": "ns", "ours": ours, "against": "x", "theirs": theirs, "better": better, "note": ""}
    if limit is not None:
        made["limit"] = limit
    return made


class BenchReportTest(unittest.TestCase):

    def test_a_table_shows_its_cells_under_their_columns(self):
        table = bench_report.Table(["a", "longer"], [["first", "1"], ["2nd", "2"]])
        self.assertEqual(bench_report.markdown_of(table), "| a | longer |\n|---|---|\n| first | 1 |\n| 2nd | 2 |")
        self.assertEqual(bench_report.text_of(table), "a      longer\nfirst  1\n2nd    2")

    def test_ratios_are_taken_pair_by_pair(self):
        self.assertEqual(bench_report.ratios(row([1, 4, 9], [1, 2, 3])), [1, 2, 3])
        self.assertEqual(bench_report.line_of(row([1, 4, 9], [1, 2, 3])).ratio, "2.000 [1.000 .. 3.000]")

    def test_a_budget_divides_every_sample(self):
        self.assertEqual(bench_report.ratios(row([20, 40], [40])), [0.5, 1.0])

    def test_the_median_decides(self):
        self.assertEqual(bench_report.verdict(row([30, 31, 39], [40])), "met")
        self.assertEqual(bench_report.verdict(row([41, 42, 43], [40])), "not met")
        self.assertEqual(bench_report.verdict(row([0.9, 0.9, 0.9], [1], "higher", 0.95)), "not met")
        self.assertEqual(bench_report.verdict(row([0.96, 0.97, 0.98], [1], "higher", 0.95)), "met")

    def test_a_spread_across_the_limit_is_called_noisy(self):
        self.assertEqual(bench_report.verdict(row([20, 30, 90], [40])), "met (noisy)")
        self.assertEqual(bench_report.verdict(row([10, 20, 39], [40])), "met")

    def test_a_budget_of_nothing_is_met_by_nothing_alone(self):
        self.assertEqual(bench_report.verdict(row([0, 0, 0], [0], limit=0)), "met")
        self.assertEqual(bench_report.verdict(row([0.1, 0.1, 0.1], [0], limit=0)), "not met")

    def test_a_row_without_a_limit_has_no_verdict(self):
        self.assertEqual(bench_report.verdict(row([1], [2], limit=None)), "-")

    def test_numbers_keep_three_digits(self):
        self.assertEqual([bench_report.number(v) for v in (0, 0.0123, 1.2345, 12.345, 123.45, 12345.6)],
                         ["0", "0.012", "1.23", "12.3", "123", "12,346"])

    def test_both_tables_have_a_line_for_each_row(self):
        rows = [row([1, 2], [1, 2]), row([5], [], limit=None)]
        self.assertEqual(len(bench_report.text_of(rows).splitlines()), 3)
        self.assertEqual(len(bench_report.markdown_of(rows).splitlines()), 4)


if __name__ == "__main__":
    unittest.main()
