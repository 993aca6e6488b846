"""The command tools/gpu_check: packs Weir's programs, and checks and measures them on a machine with a GPU."""

import argparse
import os
import shutil
import sys
import tempfile
import time

import bundle
import machine
import machine_phases
import programs
import record
import torch_phases
import weir_phases

ROOT = bundle.ROOT


class Phase:
    """A part of the check, with a limit of seconds. What needs a GPU is left out where devices are emulated."""

    def __init__(self, name, run, seconds, needs_gpu=True):
        self.name = name
        self.run = run
        self.seconds = seconds
        self.needs_gpu = needs_gpu

    @property
    def about(self):
        """The first sentence of the phase's description."""
        return self.run.__doc__.strip().splitlines()[0]


# In the order of a run: what later phases rest on comes first.
PHASES = [
    Phase("env", machine_phases.env, 60, needs_gpu=False),
    Phase("kernels", weir_phases.kernels, 150, needs_gpu=False),
    Phase("losses", weir_phases.losses, 60, needs_gpu=False),
    Phase("train", weir_phases.train, 240, needs_gpu=False),
    Phase("bits", weir_phases.bits, 60, needs_gpu=False),
    Phase("graphs", weir_phases.graphs, 120, needs_gpu=False),
    Phase("ranks", weir_phases.ranks, 90, needs_gpu=False),
    Phase("generate", weir_phases.generate, 60, needs_gpu=False),
    Phase("groups", weir_phases.groups, 120, needs_gpu=False),
    Phase("torch", torch_phases.torch, 300),
    Phase("profile", weir_phases.profile, 60),
    Phase("joins", weir_phases.joins, 150, needs_gpu=False),
    Phase("calibrate", weir_phases.calibrate, 90, needs_gpu=False),
    Phase("sanitizer", weir_phases.sanitizer, 120),
    Phase("facts", machine_phases.facts, 90),
    Phase("nccl", machine_phases.nccl, 100),
    Phase("ceilings", torch_phases.ceilings, 60),
]


class Check:
    """What a phase sees: where its programs are, which device and sizes it uses, how much time it has.

    The limits of phases are meant for a GPU. Emulated devices share the host's cores with other work and get more.
    """

    EMULATED_TAKES = 10

    def __init__(self, rows, home, options, folder):
        self.rows = rows
        self.device = "cuda-emulated" if options.emulated else "cuda"
        self.small = options.small
        self._home = home
        self._bin = options.bin
        self._folder = folder
        self._phase = ""
        self._deadline = 0.0

    def begin(self, phase, deadline):
        """Turns to a phase that has to end at a time of the monotonic clock."""
        self._phase = phase
        self._deadline = deadline

    def add(self, name, value, unit="", **more):
        """Adds a result of the phase."""
        self.rows.add(self._phase, name, value, unit, **more)

    def log(self, text):
        """Keeps what a program printed."""
        self.rows.log(text)

    def seconds_left(self):
        """Returns the seconds until the phase's limit, and 1 if there are fewer."""
        return max(1.0, self._deadline - time.monotonic())

    def limit(self, seconds):
        """Returns the seconds that a part of the phase may take, if a GPU is given `seconds`."""
        return min(seconds * (self.EMULATED_TAKES if self.device != "cuda" else 1), self.seconds_left())

    def scratch(self, name):
        """Returns the path of a file for the phase's own use. A file of this name from before is gone."""
        path = os.path.join(self._folder, name)
        if os.path.exists(path):
            os.remove(path)
        return path

    def program(self, name):
        """Returns the path of a program such as `tools/weir`, or None if it is neither built here nor in the bundle."""
        path = os.path.join(self._bin, name) if self._bin else ""
        if not path and self._home:
            path = os.path.join(self._home, "bin", os.path.basename(name))
        return path if path and os.path.exists(path) else None

    def command(self, name):
        """Returns the command that starts a program.

        Raises:
          programs.Failed: there is no such program.
        """
        path = self.program(name)
        if path is None:
            raise programs.Failed(f"expected {name} in the bundle, found none; build it, then run "
                                  "`tools/gpu_check prepare`")
        return [path] if self._bin else [os.path.join(self._home, "run"), os.path.basename(name)]

    def weir(self, *arguments):
        """Returns the command that starts weir with these arguments."""
        return [*self.command("tools/weir"), *arguments]


def prepare(options):
    """Packs what is built here into a folder that a machine with a GPU can use."""
    parts = os.path.join(ROOT, "out", "gpu_check_programs")
    os.makedirs(parts, exist_ok=True)
    packed = [bundle.build_facts(name, parts) for name in bundle.FACTS]
    for name in ["tools/weir", *weir_phases.TESTS]:
        built = os.path.join(options.bin, name)
        if os.path.exists(built):
            packed.append(built)
        else:
            print(f"gpu_check: {built} is not built; the bundle goes without it", file=sys.stderr)
    path = bundle.pack(packed, options.output)
    print(f"{path}: {len(packed)} programs, {os.path.getsize(path) / (1 << 20):.1f} MiB")
    return 0


def chosen_phases(only):
    """Returns the phases of a comma-separated list, in the order of PHASES, or the default ones."""
    if not only:
        return PHASES
    names = only.split(",")
    unknown = [name for name in names if name not in {phase.name for phase in PHASES}]
    if unknown:
        raise programs.Failed(f"there is no phase '{unknown[0]}'; the phases are "
                              + ", ".join(phase.name for phase in PHASES))
    return [phase for phase in PHASES if phase.name in names]


def run(options):
    """Runs phases, each under its limit, until all have run or the minutes are over. Returns the exit code."""
    phases = chosen_phases(options.only)
    if options.emulated:
        phases = [phase for phase in phases if not phase.needs_gpu]
    is_there, reason = machine.has_gpu()
    if not is_there and not options.emulated and [phase.name for phase in phases] != ["env"]:
        raise programs.Failed(f"expected a GPU, found none: {reason}. `--emulated` runs what makes sense without one")
    home = None
    if not options.bin:
        try:
            home = bundle.unpack(options.bundle)
        except bundle.CannotPack as missing:
            print(f"gpu_check: {missing}", file=sys.stderr)
    if not options.emulated:
        # Python's packages are where such a machine has the libraries that PyTorch uses; Weir takes the same ones.
        os.environ.setdefault("WEIR_CUDA_LIBRARIES", machine.library_folders())
    rows = record.Record(options.output)
    folder = tempfile.mkdtemp(prefix="weir-gpu-check-")
    try:
        bad = run_phases(phases, Check(rows, home, options, folder), options.minutes * 60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        rows.close()
    text = record.table(rows.rows)
    with open(rows.path("table.txt"), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    print("\n" + text)
    print(f"\n{len(phases) - len(bad)} phases ok or skipped, {len(bad)} failed"
          + (": " + ", ".join(bad) if bad else ""))
    return 1 if bad else 0


def run_phases(phases, check, seconds):
    """Runs phases for at most `seconds` and returns the names of those that failed."""
    end = time.monotonic() + seconds
    bad = []
    for phase in phases:
        begin = time.monotonic()
        state = _run_phase(phase, check, end, begin + 5 > end)
        check.begin(phase.name, end)
        check.add("phase", state, seconds=round(time.monotonic() - begin, 1))
        if not state.startswith(("ok", "skipped")):
            bad.append(phase.name)
    return bad


def _run_phase(phase, check, end, is_late):
    """Runs one phase and returns its state in words. Only an interrupt of the user ends the check."""
    if is_late:
        return "left out: no time is left"
    check.begin(phase.name, end)
    check.begin(phase.name, time.monotonic() + check.limit(phase.seconds))
    try:
        phase.run(check)
    except programs.Skipped as reason:
        return f"skipped: {reason}"
    except programs.OutOfTime as reason:
        return f"out of time: {reason}"
    except programs.Failed as reason:
        return f"failed: {reason}"
    except Exception as error:  # a fault of one phase must not lose the others, as minutes with a GPU are rare
        import traceback

        check.log(traceback.format_exc())
        return f"failed: {type(error).__name__}: {error}"
    return "ok"


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/gpu_check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Phases:\n" + "\n".join(
                                         f"  {phase.name:10} at most {phase.seconds:3} s  {phase.about}"
                                         for phase in PHASES))
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("prepare", help="pack what is built here for a machine with a GPU")
    packs.add_argument("-o", "--output", default=os.path.join(ROOT, ".gpu_check"), help="folder [.gpu_check]")
    packs.add_argument("--bin", default=os.path.join(ROOT, "bazel-bin"), help="folder of built programs [bazel-bin]")
    packs.set_defaults(call=prepare)
    runs = commands.add_parser("run", help="check and measure, on a machine with a GPU")
    runs.add_argument("--only", default="", metavar="PHASE,...", help="only these phases [all]")
    runs.add_argument("--minutes", type=float, default=9, help="end after so many minutes [9]")
    runs.add_argument("-o", "--output", default=os.path.join(ROOT, "out", "gpu_check"),
                      help="folder of the results [out/gpu_check]")
    runs.add_argument("--bin", default="", help="folder of built programs to use in place of the bundle")
    runs.add_argument("--bundle", default=os.path.join(ROOT, ".gpu_check"), help="folder of the bundle [.gpu_check]")
    runs.add_argument("--emulated", action="store_true", help="run on emulated devices, without a GPU")
    runs.add_argument("--small", action="store_true", help="run small sizes only, in a minute")
    runs.set_defaults(call=run)
    parser.epilog = f"{packs.format_usage()}{runs.format_usage()}\n{parser.epilog}"
    return parser.parse_args(arguments)


def main(arguments):
    """Runs the command and returns its exit code."""
    options = parse(arguments)
    try:
        return options.call(options)
    except (programs.Failed, bundle.CannotPack) as reason:
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 2
