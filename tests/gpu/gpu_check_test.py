"""Tests tools/gpu_check without a GPU: phases on emulated devices, time limits, the bundle, and errors."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import bundle
import command
import flops
import programs
import record
import weir_phases

NCU_TABLE = """step 1/3  loss 10.9
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","void weir::kernels::cuda::(anonymous namespace)::NormKernel<float>(NormWork)","dram__bytes_read.sum","Mbyte","1.5"
"0","7","void weir::kernels::cuda::<unnamed>::NormKernel<float>(NormWork)","gpu__time_duration.sum","usecond","2.0"
step 2/3  loss 10.8
"1","7","void weir::kernels::cuda::NormKernel<__nv_bfloat16>(NormWork)","gpu__time_duration.sum","usecond","1,000"
"1","7","void weir::kernels::cuda::NormKernel<__nv_bfloat16>(NormWork)","dram__bytes_write.sum","byte","512"
"2","7","sm90_gemm","gpu__time_duration.sum","msecond","3.0"
"""


def check(*arguments):
    """Runs the command and returns its exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.main([str(part) for part in arguments])
    return code, out.getvalue(), err.getvalue()


class GpuCheckTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def rows(self):
        """Returns the results in the folder."""
        lines = (self.folder / "gpu_check.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def test_phases_run_on_emulated_devices(self):
        code, out, err = check("run", "--emulated", "--small", "--minutes", 12, "--bin", os.getcwd(), "-o", self.folder)
        log = (self.folder / "gpu_check.log").read_text(encoding="utf-8")
        self.assertEqual(code, 0, out + err + log)
        rows = self.rows()
        states = {row["phase"]: row["value"] for row in rows if row["name"] == "phase"}
        self.assertEqual([phase for phase, state in states.items() if state == "ok"],
                         ["env", "losses", "train", "bits", "graphs", "ranks", "generate", "groups", "joins",
                          "calibrate"])
        values = {(row["phase"], row["name"]): row["value"] for row in rows}
        self.assertLess(values["losses", "f32.largest_difference"], weir_phases.F32_TOLERANCE)
        self.assertGreater(values["train", "tiny.tokens_per_second"], 0)
        self.assertIn("tiny.tokens_per_second", (self.folder / "table.txt").read_text(encoding="utf-8"))

    def test_every_test_for_a_gpu_is_packed_and_named_as_it_is_built(self):
        root = pathlib.Path(bundle.ROOT)
        for test in weir_phases.TESTS:
            folder, name = os.path.split(test)
            build = root / folder / "BUILD"
            if build.exists():  # Bazel's copy of the checkout has few of them
                self.assertIn(f'name = "{name}"', build.read_text(encoding="utf-8"), test)

    def test_an_unknown_phase_is_named_with_those_that_exist(self):
        code, _, err = check("run", "--only", "train,speed", "-o", self.folder)
        self.assertEqual(code, 2)
        self.assertIn("there is no phase 'speed'; the phases are env, kernels", err)

    def test_a_machine_without_a_gpu_is_refused_with_the_reason(self):
        with mock.patch("machine.has_gpu", return_value=(False, "the driver lists no GPU")):
            code, _, err = check("run", "-o", self.folder)
        self.assertEqual(code, 2)
        self.assertIn("expected a GPU, found none: the driver lists no GPU", err)

    def test_a_phase_that_fails_or_lasts_too_long_leaves_the_others(self):
        def too_long(run):
            """Never ends."""
            run.add("before", 1)
            programs.run(["sleep", "60"], run.seconds_left())

        def broken(run):
            """Has a fault."""
            del run
            raise ZeroDivisionError("a fault")

        def right(run):
            """Is right."""
            run.add("number", 2.5, "GB/s")

        phases = [command.Phase("too_long", too_long, 1), command.Phase("broken", broken, 5),
                  command.Phase("right", right, 5)]
        begin = time.monotonic()
        with mock.patch("command.PHASES", phases), mock.patch("machine.has_gpu", return_value=(True, "")):
            code, out, _ = check("run", "-o", self.folder)
        self.assertEqual(code, 1)
        self.assertLess(time.monotonic() - begin, 30)
        rows = self.rows()
        self.assertEqual([(row["phase"], row["name"]) for row in rows],
                         [("run", "begins"), ("too_long", "before"), ("too_long", "phase"), ("broken", "phase"),
                          ("right", "number"), ("right", "phase")])
        self.assertIn("out of time: sleep took more than 1 s", out)
        self.assertIn("failed: ZeroDivisionError: a fault", out)
        self.assertIn("1 phases ok or skipped, 2 failed: too_long, broken", out)

    def test_no_time_left_is_said_for_each_phase(self):
        with mock.patch("machine.has_gpu", return_value=(True, "")):
            code, out, _ = check("run", "--minutes", "0", "--only", "env,train", "-o", self.folder)
        self.assertEqual(code, 1)
        self.assertEqual(out.count("left out: no time is left"), 2 + 2)  # as measured, and in the table

    def test_a_program_ends_with_its_children_at_the_limit(self):
        marker = self.folder / "pid"
        with self.assertRaises(programs.OutOfTime):
            programs.run(["sh", "-c", f"sleep 60 & echo $! > {marker}; wait"], 4)
        child = int(marker.read_text(encoding="utf-8"))
        deadline = time.monotonic() + 10
        while self._runs(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(self._runs(child))

    @staticmethod
    def _runs(process):
        try:
            status = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii")
        except OSError:
            return False
        return status.rsplit(")", 1)[1].split()[0] != "Z"

    def test_lines_come_as_they_are_printed_and_a_failure_shows_the_last_ones(self):
        lines = []
        with self.assertRaisesRegex(programs.Failed, "exit code 3: one \\| two"):
            programs.must_run(["sh", "-c", "echo one; printf two >&2; exit 3"], 20, on_line=lines.append)
        self.assertEqual(lines, ["one", "two"])

    def test_a_bundle_brings_programs_and_libraries_but_not_those_of_the_system(self):
        path = bundle.pack([sys.executable], self.folder)
        home = bundle.unpack(self.folder)
        self.addCleanup(lambda: subprocess.run(["rm", "-r", home], check=True))
        self.assertEqual(os.path.basename(path), bundle.NAME)
        libraries = os.listdir(os.path.join(home, "lib"))
        self.assertFalse([name for name in libraries if name.startswith(("libc.so", "libstdc++", "ld-linux"))])
        printed = subprocess.run([os.path.join(home, "run"), os.path.basename(sys.executable), "-c", "print(6 * 7)"],
                                 capture_output=True, text=True, check=True)
        self.assertEqual(printed.stdout, "42\n")

    def test_a_bundle_over_the_limit_is_refused(self):
        with self.assertRaisesRegex(bundle.CannotPack, "the limit is 0 MiB"):
            bundle.pack(["/bin/true"], self.folder, limit_bytes=100)

    def test_a_missing_bundle_says_how_to_make_one(self):
        with self.assertRaisesRegex(bundle.CannotPack, "run `tools/gpu_check prepare`"):
            bundle.unpack(self.folder)

    def test_a_profile_adds_up_the_launches_of_a_kernel(self):
        rows = weir_phases.read_profile(NCU_TABLE)
        self.assertEqual([(row["kernel"], row["launches"]) for row in rows], [("sm90_gemm", 1), ("NormKernel", 2)])
        self.assertAlmostEqual(rows[1]["seconds"], 1002e-6)
        self.assertEqual((rows[1]["read_bytes"], rows[1]["written_bytes"]), (1.5e6, 512))

    def test_kernels_are_of_libraries_or_own(self):
        kinds = {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT": "products", "splitKreduce_kernel": "products",
                 "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16": "attention", "matmul_dq": "attention",
                 "AdamKernel": "own", "CrossEntropyGradKernel": "own"}
        self.assertEqual({kernel: weir_phases.kernel_kind(kernel) for kernel in kinds}, kinds)

    def test_shares_of_a_step_add_up(self):
        acts = [{"function": f"f{i}", "ns_per_step": 1000 * i} for i in range(1, 4)]
        acts += [{"function": f"layers.{i}", "ns_per_step": 2000} for i in range(2)]
        report = {"why_slow": {"critical_path": {"acts": acts}}}
        self.assertEqual(weir_phases.step_shares(report, most=2),
                         [("layers", 4.0, 0.4), ("f3", 3.0, 0.3), ("others", 3.0, 0.3)])
        self.assertEqual(weir_phases.step_shares({}), [])

    def test_planned_memory_is_read_in_its_unit(self):
        line = "gpt: 28.0k parameters, 1 device, 2 threads each, 1.5 MiB per device"
        self.assertEqual(weir_phases.planned_bytes(line), [1572864])
        self.assertEqual(weir_phases.planned_bytes(line + " and 512.0 KiB for its driver"), [2097152])
        self.assertEqual(weir_phases.planned_bytes("step 1/3  loss 4.1748"), [])

    def test_losses_that_are_missing_or_not_numbers_differ_infinitely(self):
        self.assertEqual(weir_phases.largest_difference([1.0, 2.0], [1.0]), float("inf"))
        self.assertEqual(weir_phases.largest_difference([float("nan")], [1.0]), float("inf"))
        self.assertEqual(weir_phases.largest_difference([], []), float("inf"))
        self.assertAlmostEqual(weir_phases.largest_difference([1.0, 2.2], [1.0, 2.0]), 0.1)

    def test_the_utilisation_is_that_of_the_published_formula(self):
        # llm.c trains GPT-2 1.5B on 8 H100 at 2.80 s per 2^20 tokens: 48.7 % of the peak by the same formula.
        size = flops.GPT2["1.5B"]
        self.assertAlmostEqual(size.parameters / 1e9, 1.556, places=3)
        self.assertAlmostEqual(size.utilisation(2**20 / 2.80 / 8), 0.487, places=3)
        self.assertAlmostEqual(flops.GPT2["124M"].parameters / 1e6, 123.69, places=2)

    def test_rows_survive_numbers_that_json_lacks(self):
        with contextlib.redirect_stdout(io.StringIO()):
            rows = record.Record(self.folder)
            rows.add("losses", "difference", float("inf"))
            rows.close()
        self.assertEqual(self.rows()[-1]["value"], "inf")

    @unittest.skipIf(bundle.toolkit() is None, "there is no nvcc here")
    def test_the_programs_of_facts_build_and_need_nothing_of_the_driver_to_start(self):
        for name, arguments, said in [("gpu_facts", ["speed"], "there is no group 'speed'"),
                                      ("nccl_facts", ["/nowhere.so", "one"], "cannot open /nowhere.so")]:
            path = bundle.build_facts(name, self.folder)
            ended = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
            self.assertIn(said, ended.stderr)
            self.assertNotIn("libcuda", subprocess.run(["ldd", path], capture_output=True, text=True).stdout)


if __name__ == "__main__":
    unittest.main()
