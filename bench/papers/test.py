#!/usr/bin/env python3
"""How rows are judged, what the page says of them, and that the kept page is of the kept numbers. Measures nothing."""

import io
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frame
import layers
import page
import reproduce
from frame import ROOT, Part, Result, Row, Unmeasured


def row(**more):
    return Row("key", "zio", "Fig. 4", "echo", "3.8x", **({"measure": lambda run: []} | more))


def result(*parts, failed=""):
    return Result(list(parts), ["command"], 1.0, failed)


class Judging(unittest.TestCase):
    def test_a_ratio_of_at_least_the_papers_is_better_and_a_smaller_one_worse(self):
        self.assertEqual(Part("a", 3.8, 3.8).verdict(), "better")
        self.assertEqual(Part("a", 3.8, 3.6).verdict(), "worse")

    def test_what_two_plain_sides_differ_by_is_excused_and_no_more_than_six_percent(self):
        self.assertEqual(Part("a", 1.0, 0.96, noise=0.05).verdict(), "better")
        self.assertEqual(Part("a", 1.0, 0.9, noise=0.5).verdict(), "worse")

    def test_in_another_set_up_only_the_direction_counts(self):
        self.assertEqual(Part("a", 9.6, 2.0, same=False).verdict(), "in kind")
        self.assertEqual(Part("a", 9.6, 0.9, same=False).verdict(), "worse")

    def test_what_is_no_ratio_is_judged_by_who_measured_it(self):
        self.assertEqual(Part("a", 190, 120, unit="ns", good=True).verdict(), "better")
        self.assertEqual(Part("a", 102, 384, unit="bytes", same=False, good=False).verdict(), "worse")

    def test_a_row_with_good_and_bad_numbers_is_mixed(self):
        self.assertEqual(frame.verdict(row(), result(Part("a", 1.0, 2.0), Part("b", 2.0, 1.0))), "mixed")
        self.assertEqual(frame.verdict(row(), result(Part("a", 1.0, 2.0), Part("b", 2.0, 1.2, same=False))), "in kind")

    def test_a_number_that_the_paper_does_not_have_judges_nothing_beside_one_that_it_has(self):
        self.assertEqual(frame.verdict(row(), result(Part("a", 3.8, 5.0), Part("b", None, 2.0))), "better")
        self.assertEqual(frame.verdict(row(), result(Part("b", None, 2.0))), "in kind")

    def test_a_row_that_was_not_measured_is_missing_or_impossible(self):
        self.assertEqual(frame.verdict(row(), None), "missing")
        self.assertEqual(frame.verdict(row(), result(failed="no redis")), "missing")
        self.assertEqual(frame.verdict(row(measure=None, absent="no RDMA", impossible=True), None), "impossible")

    def test_a_measurement_that_lacks_something_says_what(self):
        def fails(run):
            run.command(["true"])
            raise Unmeasured("no icecast2: apt install icecast2")

        of = frame.measured(row(measure=fails), frame.Run(True, show=io.StringIO()))
        self.assertEqual((of.parts, of.failed), ([], "no icecast2: apt install icecast2"))
        self.assertEqual(of.commands, ["true"])


class Rows(unittest.TestCase):
    def test_keys_are_unique_and_each_row_is_measured_or_says_why_not(self):
        keys = [each.key for each in reproduce.ROWS]
        self.assertEqual(len(keys), len(set(keys)))
        for each in reproduce.ROWS:
            self.assertIn(each.paper, page.PAPERS, each.key)
            self.assertTrue(each.measure or each.absent, each.key)


class Page(unittest.TestCase):
    about = dict.fromkeys(("command", "processor", "memory", "kernel", "congestion control", "commit", "date", "took"), "x")

    def test_it_counts_verdicts_and_says_why_a_row_is_worse(self):
        text = page.page([row(why="Because.")], {"key": result(Part("512 KB", 3.8, 2.0))}, self.about)
        self.assertIn("| worse | 1 |", text)
        self.assertIn("Fig. 4 (echo), worse: Because.", text)
        self.assertIn("| 512 KB | 3.80x | 2.00x | **worse** |", text)

    def test_noise_that_is_more_than_is_excused_is_shown(self):
        text = page.page([row()], {"key": result(Part("a", 1.0, 2.0, noise=0.31))}, self.about)
        self.assertIn("two plain sides 31 % apart", text)

    def test_it_is_of_the_numbers_that_are_kept(self):
        kept = os.path.join(ROOT, reproduce.KEPT)
        if not os.path.exists(kept):
            self.skipTest("no numbers are kept")
        with open(kept, encoding="utf-8") as file:
            numbers = json.load(file)
        with open(os.path.join(ROOT, reproduce.DOCUMENT), encoding="utf-8") as file:
            written = file.read()
        drawn = page.page(reproduce.ROWS, frame.from_json(numbers["rows"]), numbers["about"])
        self.assertEqual(written, drawn, "bench/papers/reproduce.py --redraw")


class Layers(unittest.TestCase):
    SAMPLES = """
   12
\tffffffff81234 _raw_spin_unlock_irqrestore ([kernel.kallsyms])
\tffffffff81235 tcp_v4_rcv+0x10 ([kernel.kallsyms])
\tffffffff81236 __do_softirq ([kernel.kallsyms])

   12
\t7f0001 memcpy (/usr/lib/x86_64-linux-gnu/libc.so.6)

   13
\t7f0002 push (/target/release/libuncopy.so)
""".splitlines()

    def test_a_sample_is_of_the_innermost_function_whose_layer_is_known(self):
        self.assertEqual(layers.shares(self.SAMPLES, {12}), {"TCP": 0.5, "libc": 0.5})

    def test_other_processes_samples_do_not_count(self):
        self.assertEqual(layers.shares(self.SAMPLES, {13}), {"uncopy": 1.0})
        self.assertEqual(layers.shares(self.SAMPLES, {14}), {})


if __name__ == "__main__":
    unittest.main()
