"""The phases that run PyTorch: the rates that Weir's have to meet, and the ceilings of products and attention."""

import json
import os
import subprocess
import sys

import programs

HERE = os.path.dirname(os.path.abspath(__file__))

# The most telling first: size, mode, precision, steps, seconds.
ANCHORS = [("124M", "compile", "bf16", 8, 120), ("355M", "blocks", "bf16", 6, 90), ("1.5B", "blocks", "bf16", 4, 120),
           ("124M", "compile", "autocast", 8, 120), ("124M", "eager", "autocast", 8, 60),
           ("355M", "compile", "autocast", 6, 150), ("124M", "blocks", "bf16", 8, 60)]


def _require_torch():
    asked = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"],
                           capture_output=True, text=True)
    if asked.returncode != 0:
        raise programs.Skipped(f"{sys.executable} has no torch")
    return asked.stdout.split()


def torch(check):
    """Trains the same GPT-2 in PyTorch, eager and compiled: tokens per second, MFU, memory."""
    version, has_cuda = _require_torch()
    check.add("version", version)
    if has_cuda != "True":
        raise programs.Failed("this PyTorch finds no GPU")
    for size, mode, precision, steps, seconds in ANCHORS:
        name = f"{size}.{mode}.{precision}"
        if check.seconds_left() < 20:
            check.add(name + ".failed", "no time is left")
            continue
        try:
            printed = programs.must_run(
                [sys.executable, os.path.join(HERE, "torch_anchor.py"), "--size", size, "--mode", mode, "--precision",
                 precision, "--steps", str(steps)], min(seconds, check.seconds_left()), log=check.log)
        except (programs.Failed, programs.OutOfTime) as reason:
            check.add(name + ".failed", str(reason))
            continue
        result = json.loads(printed.strip().splitlines()[-1])
        check.add(name + ".tokens_per_second", result["tokens_per_second"], "tokens/s",
                  micro_batch=result["micro_batch"], batch=result["batch"], step_seconds=result["step_seconds"],
                  losses=result["losses"])
        check.add(name + ".mfu", result["mfu"], "of 989 TFLOP/s")
        check.add(name + ".memory", result["memory_bytes"], "bytes")
        check.add(name + ".warmup", result["warmup_seconds"], "s")


def ceilings(check):
    """Measures products of the models' shapes and attention in PyTorch: what libraries reach on this GPU."""
    _require_torch()
    programs.must_run([sys.executable, os.path.join(HERE, "torch_ceilings.py")], check.seconds_left(), log=check.log,
                      on_line=lambda line: _add_fact(check, line))


def _add_fact(check, line):
    if line.startswith('{"fact"'):
        fact = json.loads(line)
        check.add(fact["fact"], fact["value"], fact["unit"])
