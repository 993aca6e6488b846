"""The phases that run Weir: tests of kernels, training, equal losses, equal bits, several ranks, costs, a profile."""

import csv
import hashlib
import io
import json
import os
import re
import statistics
import threading
import time

import flops
import machine
import programs

# Tests that run their kernels on the kind of device that WEIR_TEST_DEVICE names.
KERNEL_TESTS = ["ops/kernels/cpu/kernels_cuda_emulated_test", "ops/testing/law_cuda_emulated_test",
                "ops/testing/gradient_cuda_emulated_test", "ops/kernels/cuda/join_test"]
# The suites of devices and memories on the device that WEIR_TEST_DEVICE names, and tests that find a GPU by themselves.
DEVICE_TESTS = ["runtime/device/cuda/gpu_conformance_test", "runtime/device/device_test"]
# The suite of collectives over NCCL: one rank, and two processes on the one GPU.
NCCL_TEST = "runtime/collective/nccl_collective_test"
# `prepare` packs these programs beside weir itself.
TESTS = [*KERNEL_TESTS, *DEVICE_TESTS, NCCL_TEST]

LAYOUTS = ["dp=2", "tp=2", "pp=2", "dp=2,tp=2"]
F32_TOLERANCE = 1e-3
BF16_TOLERANCE = 1e-2


def on_device(check):
    """Returns the flags of weir that choose the device of the check."""
    return ["--set", "runtime.device=" + check.device]


def write_job(check, size, precision, **settings):
    """Writes a job of a GPT-2 on random tokens with `weir zoo` and returns its path. Settings are flags of the zoo."""
    flags = {"layers": size.layers, "hidden": size.hidden, "heads": size.heads, "vocab": size.vocab,
             "sequence": size.sequence, "batch": size.batch, "micro-batches": size.batch // size.micro_batch,
             "precision": precision, **settings}
    words = [word for name, value in flags.items() for word in ("--" + name, str(value))]
    text = programs.must_run(check.weir("zoo", "gpt", "--tied", *words), check.limit(30))
    path = check.scratch("job.textproto")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def train_job(check, job, steps, *flags, seconds=None, device_flags=None, on_line=None, env=None):
    """Trains a job and returns the lines of its metrics. A run out of time gives the lines that it wrote."""
    metrics = check.scratch("metrics.jsonl")
    command = check.weir("train", job, "--steps", str(steps), "--metrics", metrics,
                         *(on_device(check) if device_flags is None else device_flags), *flags)
    late = None
    try:
        programs.must_run(command, check.limit(seconds) if seconds else check.seconds_left(), log=check.log,
                          on_line=on_line, env=env)
    except programs.OutOfTime as reason:
        late = reason
    lines = []
    if os.path.exists(metrics):
        with open(metrics, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
    if late and len(lines) < 3:
        raise late
    return lines


def kernels(check):
    """Runs the tests of kernels, laws and gradients on the device."""
    tests = [test for test in KERNEL_TESTS + DEVICE_TESTS if check.program(test) is not None]
    if check.small:
        raise programs.Skipped("tools/test runs them itself")
    if not tests:
        raise programs.Failed("the bundle has none of these tests; build them, then run `tools/gpu_check prepare`")
    run_tests(check, tests, 90, {"WEIR_TEST_DEVICE": check.device})


def run_tests(check, tests, seconds, env):
    """Runs programs of GoogleTest, each for at most so many seconds, and adds what passed, failed and was skipped."""
    failed = []
    for test in tests:
        name = os.path.basename(test)
        cases = {"OK": [], "FAILED": [], "SKIPPED": []}
        state = "ok"
        try:
            code, printed = programs.run(check.command(test), check.limit(seconds), log=check.log, env=env,
                                         on_line=lambda line, cases=cases: _count_test(line, cases))
            if code != 0:
                state = f"exit code {code}: {printed.strip().splitlines()[-1][:200] if printed.strip() else ''}"
        except programs.OutOfTime as reason:
            state = str(reason)
        check.add(name + ".passed", len(cases["OK"]), "tests")
        for case in cases["FAILED"]:
            check.add(name + ".failed", case)
        if cases["SKIPPED"]:
            check.add(name + ".skipped", len(cases["SKIPPED"]), "tests")
        check.add(name, state)
        if state != "ok":
            failed.append(name)
    if failed:
        raise programs.Failed("tests fail: " + ", ".join(failed))


def _count_test(line, cases):
    """Adds the test whose end a line of GoogleTest tells to the lists of `cases`: "OK", "FAILED" and "SKIPPED"."""
    case = re.match(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+) \(", line)
    if case:
        cases[case[1]].append(case[2].rstrip(","))


def sanitizer(check):
    """Runs the tests of kernels under compute-sanitizer's memcheck."""
    tool = machine.tools()["compute-sanitizer"]
    if tool is None:
        raise programs.Skipped("there is no compute-sanitizer here")
    found = False
    tests = [test for test in KERNEL_TESTS if check.program(test) is not None]
    for i, test in enumerate(tests):
        name = os.path.basename(test)
        cases, errors = {"OK": [], "FAILED": [], "SKIPPED": []}, []

        def read(line):
            _count_test(line, cases)
            if line.startswith("========= ") and re.search(r"(Invalid|Error|leak|Misaligned|out of bounds)", line):
                errors.append(line[10:])

        share = check.seconds_left() / (len(tests) - i)
        state = "ok"
        try:
            code, _ = programs.run([tool, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9",
                                    *check.command(test)], share, log=check.log, on_line=read,
                                   env={"WEIR_TEST_DEVICE": check.device})
            if code != 0:
                state = f"exit code {code}"
        except programs.OutOfTime as reason:
            state = f"no error so far: {reason}" if not errors else str(reason)
        check.add(name + ".passed", len(cases["OK"]), "tests")
        for error in errors[:10]:
            check.add(name + ".error", error[:200])
        check.add(name, state)
        found = found or bool(errors) or state.startswith("exit")
    if found:
        raise programs.Failed("memcheck finds errors; gpu_check.log has all that it says")


class Observer:
    """Watches the GPU's memory, power and clock by nvidia-smi while a program runs."""

    def __init__(self):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.samples = []
        self.idle_mib = self._memory()

    @staticmethod
    def _memory():
        return float(machine.query_gpu("memory.used").get("memory.used", "nan"))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._end.set()
        self._thread.join()

    def _watch(self):
        fields = ["memory.used", "power.draw", "clocks.sm", "temperature.gpu"]
        while not self._end.wait(1.0):
            sample = machine.query_gpu(*fields)
            if sample:
                self.samples.append([_number(sample[field]) for field in fields])

    def used_bytes(self):
        """Returns the most memory beyond what was in use before, or None without nvidia-smi."""
        if not self.samples:
            return None
        return (max(sample[0] for sample in self.samples) - self.idle_mib) * (1 << 20)

    def busiest(self, field):
        """Returns the median of a field over the half of the samples with the most power, or None."""
        half = sorted(self.samples, key=lambda sample: sample[1])[len(self.samples) // 2:]
        return statistics.median(sample[field] for sample in half) if half else None


def _number(text):
    try:
        return float(text)
    except ValueError:
        return float("nan")


def train(check):
    """Trains GPT-2 in bf16 on random tokens: tokens per second, MFU, memory, and how long the GPU idles."""
    failed = []
    for name, steps, seconds in [("tiny", 3, 20)] if check.small else [("124M", 12, 60), ("355M", 8, 60),
                                                                      ("1.5B", 5, 80)]:
        size = flops.GPT2[name]
        try:
            _train_size(check, name, size, steps, seconds)
        except (programs.Failed, programs.OutOfTime) as reason:
            check.add(name + ".failed", str(reason))
            failed.append(name)
    if failed:
        raise programs.Failed("training fails: " + ", ".join(failed))


def _train_size(check, name, size, steps, seconds):
    job = write_job(check, size, "bf16")
    plans, ready = [], []
    begin = time.monotonic()

    def read(line):
        plans.extend(planned_bytes(line))
        if plans and not ready:
            ready.append(time.monotonic() - begin)

    with Observer() as observer:
        lines = train_job(check, job, steps, seconds=seconds, on_line=read)
    if not plans:
        raise programs.Failed("expected weir train to say how much memory it needs per device, found no such line")
    planned = plans[0]
    check.add(name + ".planned_memory", planned, "bytes")
    check.add(name + ".ready", ready[0], "s until weir has its memory and its weights")
    check.add(name + ".steps", len(lines), "steps")
    check.add(name + ".losses", [line["loss"] for line in lines])
    step = statistics.median(line["step_seconds"] for line in lines[len(lines) // 2:])
    check.add(name + ".step", step, "s")
    check.add(name + ".tokens_per_second", size.tokens / step, "tokens/s")
    if check.device == "cuda":
        check.add(name + ".mfu", size.utilisation(size.tokens / step), "of 989 TFLOP/s")
    used = observer.used_bytes()
    if used is not None:
        check.add(name + ".used_memory", used, "bytes, with the context of the driver")
        check.add(name + ".used_beyond_plan", used - planned, "bytes", share=used / planned - 1)
        check.add(name + ".power", observer.busiest(1), "W")
        check.add(name + ".clock", observer.busiest(2), "MHz")
    # The trace of one size stays among the results, for `weir view`.
    trace = check.rows.path("train.pftrace") if name == "124M" else check.scratch("trace.pftrace")
    train_job(check, job, max(2, steps // 3), "--trace", trace, seconds=seconds)
    report = json.loads(programs.must_run(check.weir("trace", "report", trace, "--json"), check.limit(60)))
    # A device has a row per queue. The busiest queue is the one that computes.
    check.add(name + ".idle", 1 - max(device["busy"] for device in report["devices"]), "of the step")
    for function, microseconds, share in step_shares(report):
        check.add(f"{name}.act.{function}", share, "of the step", us_per_step=microseconds)


def step_shares(report, most=12):
    """Returns what the step's time goes into by a trace's report: (function, us per step, share), longest first.

    Calls of one function, such as those of all layers, are one row.
    """
    by_function = {}
    for act in report.get("why_slow", {}).get("critical_path", {}).get("acts", []):
        function = re.sub(r"\.\d+$", "", act["function"])
        by_function[function] = by_function.get(function, 0) + act["ns_per_step"]
    total = sum(by_function.values())
    acts = sorted(by_function.items(), key=lambda act: -act[1])
    rest = sum(ns for _, ns in acts[most:])
    return [(function, ns * 1e-3, ns / total)
            for function, ns in acts[:most] + ([("others", rest)] if rest else [])]


# The rules of ops/kernels/cuda/join.cc, the one that is least sure to gain first.
JOINS = ["all", "bias-gradient", "gelu-gradient", "addition", "many", "norm-addition", "accumulate", "square-sums",
         "norm-of-sum", "silu-product"]


def joins(check):
    """Trains without each of the rules by which kernels are joined, and says how much longer a step takes."""
    name, steps = ("tiny", 3) if check.small else ("124M", 6)
    job = write_job(check, flops.GPT2[name], "bf16")

    def step_without(rules):
        lines = train_job(check, job, steps, seconds=40, env={"WEIR_CUDA_UNJOINED": rules})
        return statistics.median(line["step_seconds"] for line in lines[len(lines) // 2:]), lines[-1]["loss"]

    joined, loss = step_without("")
    check.add("joined", joined, "s per step", loss=loss)
    for rule in JOINS[:1] if check.small else JOINS:
        if check.seconds_left() < 15:
            check.add(rule + ".failed", "no time is left")
            continue
        without, loss = step_without(rule)
        check.add("without." + rule, without / joined - 1, "longer", step_seconds=without, loss=loss)


def calibrate(check):
    """Measures the costs of the kernels of a job, and says what step they predict beside the step of a run."""
    name, steps = ("tiny", 3) if check.small else ("124M", 6)
    job = write_job(check, flops.GPT2[name], "bf16")
    costs = check.rows.path("gpu.textproto")
    calibrate_job = check.weir("calibrate", job, *on_device(check), "--steps", "2", "-o", costs)
    programs.must_run(calibrate_job, check.limit(60), log=check.log)
    printed = programs.must_run(check.weir("plan", job, *on_device(check), "--cluster", costs, "--json"),
                                check.limit(30))
    predicted = json.loads(printed[printed.index("{"):])["prediction"]["step_seconds"]
    lines = train_job(check, job, steps, seconds=40)
    step = statistics.median(line["step_seconds"] for line in lines[len(lines) // 2:])
    check.add("predicted_step", predicted, "s")
    check.add("step", step, "s")
    check.add("predicted_over_step", predicted / step, "")


def planned_bytes(line):
    """Returns the memory per device that a line of weir train names, in bytes, as a list of one, or of none.

    The memory that the line plans for the driver of a device counts, too.
    """
    found = re.search(r"([\d.]+) (B|KiB|MiB|GiB) per device(?: and ([\d.]+) (B|KiB|MiB|GiB) for its driver)?", line)
    if not found:
        return []
    units = ["B", "KiB", "MiB", "GiB"]
    driver = float(found[3]) * 1024 ** units.index(found[4]) if found[3] else 0
    return [round(float(found[1]) * 1024 ** units.index(found[2]) + driver)]


def small_size(check):
    """Returns the size of model that phases of correctness use."""
    return flops.GPT2["tiny"] if check.small else flops.Size(4, 256, 4, vocab=1024, sequence=128, batch=8,
                                                             micro_batch=4)


def largest_difference(found, expected):
    """Returns the largest relative difference of two lists of losses. Lists of other lengths differ infinitely."""
    if len(found) != len(expected) or not expected:
        return float("inf")
    worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(found, expected))
    return worst if worst == worst else float("inf")


def _losses_of(lines):
    return [line["loss"] for line in lines]


def losses(check):
    """Compares the losses of 20 small steps with those of the CPU, in f32 and in bf16."""
    steps = 3 if check.small else 20
    bad = []
    for precision, tolerance in [("f32", F32_TOLERANCE), ("bf16", BF16_TOLERANCE)]:
        job = write_job(check, small_size(check), precision)
        expected = _losses_of(train_job(check, job, steps, device_flags=["--set", "runtime.device=cpu"]))
        found = _losses_of(train_job(check, job, steps))
        difference = largest_difference(found, expected)
        check.add(precision + ".largest_difference", difference, f"relative, of {len(expected)} losses")
        check.add(precision + ".losses", found)
        check.add(precision + ".losses_of_the_cpu", expected)
        if difference > tolerance:
            bad.append(f"{precision} differs by {difference:.2g}, at most {tolerance:g}")
    if bad:
        raise programs.Failed("; ".join(bad))


def bits(check):
    """Trains with queues and depths that differ, and compares the bits of the saved weights."""
    job = write_job(check, small_size(check), "bf16")
    weights = {}
    for name, queues, depth in [("depth_1", 1, 1), ("depth_64", 4, 64), ("depth_64_again", 4, 64)]:
        saved = check.scratch("weights.safetensors")
        train_job(check, job, 2 if check.small else 20, "--save", saved, "--set", f"runtime.device_queues={queues}",
                  "--set", f"runtime.device_depth={depth}")
        with open(saved, "rb") as file:
            weights[name] = hashlib.sha256(file.read()).hexdigest()
        check.add(name, weights[name])
    if len(set(weights.values())) > 1:
        raise programs.Failed("the weights of runs that must be equal differ")


def graphs(check):
    """Trains with and without graphs of kernels: equal bits of the weights, and how long a step and a launch take."""
    job = write_job(check, small_size(check), "bf16")
    weights = {}
    for name, use, queues, depth in [("off", "OFF", 4, 64), ("on", "ON", 4, 64), ("on_depth_1", "ON", 1, 1),
                                     ("auto", "AUTO", 4, 64)]:
        saved = check.scratch("weights.safetensors")
        train_job(check, job, 3 if check.small else 20, "--save", saved, *graph_flags(use),
                  "--set", f"runtime.device_queues={queues}", "--set", f"runtime.device_depth={depth}")
        with open(saved, "rb") as file:
            weights[name] = hashlib.sha256(file.read()).hexdigest()
        check.add(name, weights[name])
    # Few rows for each kernel: launches cost the most there.
    size = flops.GPT2["tiny"] if check.small else flops.Size(12, 768, 12, sequence=256, batch=4, micro_batch=2)
    job = write_job(check, size, "bf16")
    steps, used = {}, {}
    for use in ["OFF", "ON"] if check.small else ["OFF", "ON", "AUTO", "OFF", "ON", "AUTO"]:
        with Observer() as observer:
            lines = train_job(check, job, 3 if check.small else 30, *graph_flags(use), seconds=30)
        late = [line["step_seconds"] for line in lines[len(lines) // 2:]]
        steps.setdefault(use, []).append(statistics.median(late))
        used[use] = observer.used_bytes()
    for use, seconds in steps.items():
        check.add(f"step.{use.lower()}", min(seconds), "s per step", all=seconds)
        check.add(f"over_off.{use.lower()}", min(seconds) / min(steps["OFF"]), "of the step without graphs")
    if used["ON"] is not None and used["OFF"] is not None:
        check.add("memory", used["ON"] - used["OFF"], "bytes of the GPU beyond those of a run without graphs")
    if len(set(weights.values())) > 1:
        raise programs.Failed("the weights of runs that must be equal differ")


def graph_flags(use):
    """Returns the flags of weir that choose which acts are graphs."""
    return ["--set", "runtime.graphs=" + use]


def ranks(check):
    """Trains on ranks that share the device, in one and two processes, and compares losses with those of one rank."""
    steps = 3 if check.small else 10
    job = write_job(check, small_size(check), "f32")
    expected = _losses_of(train_job(check, job, steps))
    check.add("one", expected)
    bad = []
    runs = [(layout, ["--mesh", layout]) for layout in (LAYOUTS[-1:] if check.small else LAYOUTS)]
    if not check.small:
        runs += [(layout + ".processes", ["--mesh", layout, "--processes", "2"]) for layout in LAYOUTS[:3]]
    for name, flags in runs:
        try:
            found = _losses_of(train_job(check, job, steps, *flags, seconds=30))
        except (programs.Failed, programs.OutOfTime) as reason:
            check.add(name + ".failed", str(reason))
            bad.append(name)
            continue
        difference = largest_difference(found, expected)
        check.add(name + ".largest_difference", difference, "relative")
        if difference > F32_TOLERANCE:
            bad.append(name)
    if bad:
        raise programs.Failed("losses differ from those of one rank, or training fails: " + ", ".join(bad))


def generate(check):
    """Generates from trained weights on the device and on the CPU, with and without the cache: the same text."""
    job = write_job(check, flops.Size(2, 64, 4, vocab=256, sequence=64, batch=4, micro_batch=4), "f32")
    weights = check.scratch("weights.safetensors")
    train_job(check, job, 3 if check.small else 20, "--save", weights)
    texts = {}
    gpu = on_device(check)
    for name, flags in [("cpu", ["--set", "runtime.device=cpu"]), ("cache", gpu), ("windows", [*gpu, "--no-cache"]),
                        ("tp=2", [*gpu, "--mesh", "tp=2"])]:
        texts[name] = programs.must_run(
            check.weir("generate", job, "--init", weights, "--temperature", "0", "--tokens", "20", "--prompt", "And",
                       *flags), check.limit(30))
        check.add(name, hashlib.sha256(texts[name].encode()).hexdigest()[:16])
    if len(set(texts.values())) > 1:
        raise programs.Failed("texts that must be equal differ")


def groups(check):
    """Trains on two ranks whose groups NCCL serves, and compares the losses with those of one rank.

    NCCL takes one process and one GPU for each rank, and this machine has one GPU. So NCCL is told that each process
    is a host of its own. Emulated devices have an emulated NCCL, for the ranks of one process.
    """
    if check.device == "cuda":
        _run_nccl_suite(check)
    steps = 3 if check.small else 10
    job = write_job(check, small_size(check), "f32")
    expected = _losses_of(train_job(check, job, steps))
    processes = ["--processes", "2"] if check.device == "cuda" else []
    bad = []
    for layout in ["dp=2"] if check.small else ["dp=2", "tp=2"]:
        found = _losses_of(train_job(check, job, steps, "--mesh", layout, "--collectives", "nccl", *processes,
                                     seconds=60, env={"WEIR_NCCL_SHARE_GPU": "1"}))
        difference = largest_difference(found, expected)
        check.add(layout + ".largest_difference", difference, "relative")
        if difference > F32_TOLERANCE:
            bad.append(layout)
    if bad:
        raise programs.Failed("losses differ from those of one rank: " + ", ".join(bad))


def _run_nccl_suite(check):
    """Runs Weir's suite of collectives over NCCL, if its program is there."""
    if check.program(NCCL_TEST) is None:
        check.add("nccl_collective_test", "the bundle lacks it")
        return
    libraries = machine.find_library("libnccl")
    run_tests(check, [NCCL_TEST], 60, {"WEIR_CUDA_LIBRARIES": os.path.dirname(libraries[0])} if libraries else {})


def profile(check):
    """Profiles a step with ncu: time, bytes per second and share of the peak of each kernel."""
    tool = machine.tools()["ncu"]
    if tool is None:
        raise programs.Skipped("there is no ncu here")
    size = flops.GPT2["124M"]
    job = write_job(check, flops.Size(size.layers, size.hidden, size.heads, batch=16, micro_batch=16), "bf16")
    metrics = ["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"]
    begin = time.monotonic()
    code, printed = programs.run(
        [tool, "--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(metrics), "--csv",
         "--target-processes", "all", "--launch-skip", "900", "--launch-count", "900",
         *check.weir("train", job, "--steps", "3", *on_device(check))], check.seconds_left())
    rows = read_profile(printed)
    if not rows:
        check.log(printed[-4000:])
        raise programs.Failed(f"ncu measures nothing (exit code {code}); gpu_check.log has what it says")
    check.add("launches", sum(row["launches"] for row in rows), "launches", seconds=time.monotonic() - begin)
    total = sum(row["seconds"] for row in rows)
    with open(check.rows.path("profile.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["kernel", "launches", "seconds", "read_bytes", "written_bytes"])
        writer.writeheader()
        writer.writerows(rows)
    for kind in sorted({kernel_kind(row["kernel"]) for row in rows}):
        seconds = sum(row["seconds"] for row in rows if kernel_kind(row["kernel"]) == kind)
        check.add("share." + kind, seconds / total, "of the kernels' time")
    for row in rows[:25]:
        rate = (row["read_bytes"] + row["written_bytes"]) / row["seconds"] * 1e-9
        check.add(row["kernel"][:60], rate, "GB/s", share=row["seconds"] / total, launches=row["launches"],
                  us=row["seconds"] / row["launches"] * 1e6)


_UNITS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3, "second": 1, "s": 1,
          "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def kernel_name(signature):
    """Returns the name of a kernel without its result, namespaces, template arguments and parameters."""
    bare = signature.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").replace("void ", "")
    return re.sub(r"\(.*|<.*", "", bare).split("::")[-1]


def kernel_kind(kernel):
    """Returns what a kernel is for: the products and the attention of libraries, or Weir's own kernels."""
    if re.match(r"(nvjet|cutlass|sm\d+_xmma|gemm|gemv|splitK)", kernel) or "gemm" in kernel:
        return "products"
    if re.search(r"sdpa|^matmul_dq|^compute_dot_do_o|^convert_dq|^cudnn", kernel):
        return "attention"
    return "own"


def read_profile(printed):
    """Returns a row per kernel from ncu's table, the longest total time first."""
    lines = printed.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return []
    fields = {"gpu__time_duration.sum": "seconds", "dram__bytes_read.sum": "read_bytes",
              "dram__bytes_write.sum": "written_bytes"}
    kernels_by_name, launches = {}, {}
    # The program's own lines may stand between those of the table.
    table = [line for line in lines[first:] if line.startswith('"')]
    for line in csv.DictReader(io.StringIO("\n".join(table))):
        name = kernel_name(line["Kernel Name"])
        row = kernels_by_name.setdefault(name, dict.fromkeys(fields.values(), 0.0))
        value = float(line["Metric Value"].replace(",", ""))
        row[fields[line["Metric Name"]]] += value * _UNITS[line["Metric Unit"]]
        launches.setdefault(name, set()).add(line["ID"])
    rows = [{"kernel": name, "launches": len(launches[name]), **row} for name, row in kernels_by_name.items()]
    return sorted(rows, key=lambda row: -row["seconds"])
