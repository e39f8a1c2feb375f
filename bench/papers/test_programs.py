#!/usr/bin/env python3
"""What the measurements of this directory read out of what programs say, with fixed inputs. (tests/all papers)"""

import importlib
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import calls  # noqa: E402
import redis_pages  # noqa: E402
import share  # noqa: E402
import turns  # noqa: E402

MODULES = ("solaris", "zcopy", "article", "zio_more")

PERF = """
# Samples: 1K of event 'cpu-clock'
#     Overhead  Shared Object      Symbol
        40.00%  [kernel.kallsyms]  [k] rep_movs_alternative
        10.50%  libc.so.6          [.] __memmove_avx512_unaligned_erms
        10.00%  [kernel.kallsyms]  [k] copy_folio_from_iter_atomic
         5.00%  [kernel.kallsyms]  [k] _copy_to_iter
         4.00%  libuncopy.so       [.] uncopy_copies::shifted
         3.00%  [kernel.kallsyms]  [k] copy_process
         2.00%  redis-server       [.] memtier
"""


class Shares(unittest.TestCase):
    def test_copies_of_the_kernel_and_of_the_program_are_told_apart_and_nothing_else_counts(self):
        self.assertEqual(share.shares(PERF), {"kernel": 55.0, "program": 14.5})

    def test_a_report_without_samples_is_a_failure_and_not_nothing(self):
        with self.assertRaisesRegex(turns.Failure, "no samples"):
            share.shares("# Total Lost Samples: 0\n")


ENTRIES = """
     4085   4085 Did(Copy { to: 8192, from: 16384, len: 16384, caller: 9, input: true })
     4085   4085 Told(17289, ElidedAgain { bytes: 12288 })
     4086   4086 Did(Copy { to: 8200, from: 16384, len: 16384, caller: 9, input: true })
     4086   4086 Did(Copy { to: 4097, from: 1, len: 16384, caller: 9, input: false })
     4087   4087 Did(Copy { to: 8192, from: 16384, len: 100, caller: 9, input: false })
"""
STRACE = """
77 read(0x8, 0x7f0000001000, 0x8000) = 0x5001
77 write(0x9, 0x7f0000001010, 0x8000) = 0x8000
77 read(0x8, 0x7f0000001000, 0x8000) = 0xfffffffffffffff5 (errno 11)
77 read(0x8, 0x7f0000001000, 0x10) = 0x10
"""


class Pages(unittest.TestCase):
    def test_only_whole_pages_within_count(self):
        self.assertEqual([redis_pages.whole_pages(*of) for of in ((0, 4096), (1, 4096), (1, 8192), (4096, 100), (4095, 4098))], [4096, 0, 4096, 0, 4096])

    def test_pages_of_a_copy_can_be_remapped_where_both_ends_lie_alike(self):
        # (The first: four pages. The second lies otherwise. The third lies alike, off by one: three whole pages. The fourth is too small.)
        self.assertEqual(redis_pages.of_copies(ENTRIES, 4096), (3 * 16384, 16384 + 3 * 4096))

    def test_a_calls_buffer_counts_by_what_was_done_and_errors_do_not(self):
        self.assertEqual(redis_pages.of_calls(STRACE, 4096), (0x5001 + 0x8000, 0x5000))

    def test_what_was_elided_is_told_apart_from_what_was_not(self):
        self.assertEqual([int(n) for n in redis_pages.ELIDED.findall(ENTRIES)], [12288])

    def test_the_share_in_huge_pages_is_of_all_that_is_resident(self):
        self.assertEqual(redis_pages.huge_share("Rss:            4096 kB\nPss: 1 kB\nAnonHugePages:      1024 kB\n"), 0.25)


COUNTED = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 35.95    0.027673       27673         1           wait4
 21.83    0.016806         133       126           sendmsg
  1.45    0.001118           1      1030      1022 getsockopt
------ ----------- ----------- --------- --------- ----------------
100.00    0.045597          30      1157      1022 total
"""


class Calls(unittest.TestCase):
    def test_calls_are_counted_by_name_with_and_without_errors(self):
        self.assertEqual(calls.counted(COUNTED), {"wait4": 1, "sendmsg": 126, "getsockopt": 1030})

    def test_copies_are_weighed_by_bytes_and_only_of_what_went_out_through_sockets(self):
        def path(to, of, kernel, copies):
            return {"to": {"kind": to}, "bytes": of, "kernel_copies": kernel, "copies": copies}

        said = json.dumps({"paths": [path("socket", 300, 2, 0), path("socket", 100, 1, 2), path("file", 1000, 2, 9)]}) + "\n"
        self.assertEqual(calls.copies_of(said), {"kernel": 1.75, "program": 0.5})
        with self.assertRaises(turns.Failure):
            calls.copies_of('{"paths": []}\n')


class Turns(unittest.TestCase):
    def test_shootdowns_are_those_of_all_processors(self):
        self.assertEqual(turns.shootdowns(" LOC: 1 2 Local timer interrupts\n TLB:       4602       4496   TLB shootdowns\n"), 9098)
        self.assertEqual(turns.shootdowns(""), 0)

    def test_every_side_is_first_as_often_and_what_warms_does_not_count(self):
        order = []
        found = turns.in_turns(["a", "b", "c"], 3, lambda name: order.append(name) or len(order), warm=1)
        self.assertEqual("".join(order), "cab" + "abc" + "bca" + "cab")
        self.assertEqual(found, {"a": [4, 9, 11], "b": [5, 7, 12], "c": [6, 8, 10]})

    def test_ratios_are_of_turns_and_above_one_where_the_side_takes_less(self):
        found = {"plain": [10, 20, 90], "uncopy": [5, 20, 30]}
        self.assertEqual(turns.ratio(found, "uncopy", lambda took: took), 2)

    def test_a_side_whose_connections_have_another_congestion_control_is_a_failure_and_no_figure(self):
        turns.alike({"plain": [{"control": "cubic"}], "uncopy": [{"control": "cubic"}]}, "cubic")
        with self.assertRaisesRegex(turns.Failure, "connections of uncopy had reno, not cubic"):
            turns.alike({"plain": [{"control": "cubic"}], "uncopy": [{"control": "reno"}]}, "cubic")

    def test_plain_sides_that_are_far_apart_are_a_failure_and_no_figure(self):
        self.assertEqual([turns.noise(1.1), turns.noise(0.97)], [0.1, 0.03])
        with self.assertRaisesRegex(turns.Failure, "380% apart"):
            turns.noise(4.8)

    def test_sizes(self):
        self.assertEqual([turns.size_of(word) for word in ("512", "16K", "1m", "2G")], [512, 16384, 1 << 20, 2 << 30])

    def test_the_time_of_a_thread_that_ended_stays_its_processs(self):
        import threading

        before = turns.cpu(os.getpid())
        thread = threading.Thread(target=lambda: sum(range(2_000_000)))
        thread.start(), thread.join()
        self.assertGreater(turns.cpu(os.getpid()) - before, 1_000_000)


class Programs(unittest.TestCase):
    """The programs compare what they carry: so a wrong byte ends them."""

    def web(self, method, file, answer):
        with turns.sides(["plain"]) as sides:
            side = sides["plain"]
            paths = {name: os.path.join(side.directory, name) for name in ("file", "request", "answer")}
            request = file if method == "take" else b"please send it.\n"
            for name, what in (("file", file), ("request", request), ("answer", answer)):
                with open(paths[name], "wb") as f:
                    f.write(what)
            server = side.talk([turns.program("web"), paths["file"], method, 65536, 1, "reno"], turns.cores()[0])
            load = [turns.program("load"), server.line(), 2, paths["request"], paths["answer"], "keep", "raw", "reno"]
            return side.talk(load, turns.cores()[1]).ask(10_000_000, 1)

    def test_all_methods_send_the_file_and_its_length_is_looked_at(self):
        file = os.urandom(300_000)
        for method in ("read", "prefault", "mmap", "sendfile", "mmapsendfile"):
            self.assertGreater(self.web(method, file, file)["answers"], 0, method)
        # (The answer is 16 bytes long.)
        self.assertGreater(self.web("take", file, b"has been received"[:16])["answers"], 0)

    def test_a_wrong_byte_in_the_middle_of_an_answer_ends_the_load(self):
        file = bytearray(os.urandom(300_000))
        other = bytes(file)
        file[150_001] ^= 1
        with self.assertRaisesRegex(turns.Failure, "wrong"):
            self.web("read", bytes(file), other)

    def test_ttcp_compares_every_word(self):
        with turns.sides(["plain"]) as sides:
            receiver = sides["plain"].talk([turns.program("ttcp"), "r", 65536, "reno"], turns.cores()[1])
            sender = sides["plain"].talk([turns.program("ttcp"), "t", 16384, "reno", receiver.line(), 9, "send"], turns.cores()[0])
            for touch in (0, 1):
                said = sender.ask(1 << 20, touch, 1)
                self.assertEqual(said["control"], "reno")
                self.assertEqual(said["bytes"], (1 << 20) // (9 * 16384) * 9 * 16384)
                self.assertGreater(min(said[end] for end in ("wall", "sender", "receiver")), 0)


class Doctor(unittest.TestCase):
    def test_answers_to_touches_of_a_page_are_told_from_those_to_more(self):
        def took(work, size, ns):
            return {"work": work, "bytes": size, "ns": ns}

        said = [took("fault_same_core", 4096, 3700), took("fault_same_core", 65536, 18400), took("fault_other_core", 4096, 11600), took("system_call", 0, 160)]
        self.assertEqual(importlib.import_module("zcopy").answers({"measured": said}), (3.7, 11.6, 0.16))


class Rows(unittest.TestCase):
    def test_each_row_can_be_measured_or_says_why_not_and_has_a_key_of_its_own(self):
        rows = [row for name in MODULES for row in importlib.import_module(name).ROWS]
        self.assertEqual(len({row.key for row in rows}), len(rows))
        for row in rows:
            self.assertTrue(row.measure or row.absent, row.key)
            self.assertTrue(row.why.endswith(".") if row.why else True, row.key)

    def test_a_measurement_that_its_script_fails_at_says_so_and_is_none(self):
        frame = importlib.import_module("frame")

        class Failing(frame.Run):
            def command(self, words, **_):
                raise frame.Unmeasured("no such thing here")

        # (Programs need not be here to be found missing by what follows.)
        here = unittest.mock.patch("turns.installed", lambda name, _package: name)
        with here, tempfile.TemporaryFile("w") as nowhere:
            for name in MODULES:
                for row in importlib.import_module(name).ROWS:
                    if row.measure:
                        result = frame.measured(row, Failing(True, nowhere))
                        self.assertEqual((result.parts, result.failed), ([], "no such thing here"), row.key)


if __name__ == "__main__":
    unittest.main()
