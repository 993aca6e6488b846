"""The phases that need nothing of Weir: what the machine has, what the device's calls cost, and NCCL on one GPU."""

import json
import os
import tempfile

import bundle
import machine
import programs


def env(check):
    """Lists the machine, the driver, NVIDIA's libraries and tools, and what else uses the GPU."""
    for name, value in machine.host().items():
        check.add(name, value)
    fields = ["name", "driver_version", "vbios_version", "memory.total", "memory.used", "clocks.sm", "clocks.mem",
              "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu", "compute_mode", "persistence_mode",
              "pcie.link.gen.current", "pcie.link.width.current", "mig.mode.current", "ecc.mode.current"]
    for name, value in machine.query_gpu(*fields).items():
        check.add("gpu." + name, value)
    for name, path in machine.tools().items():
        check.add("tool." + name, path or "not here")
    for name, version in machine.packages().items():
        check.add("python." + name, version)
    for name, function in machine.LIBRARIES.items():
        paths = machine.find_library(name)
        for path in paths:
            check.add("library." + name, machine.library_version(path, function), path=path)
        if not paths:
            check.add("library." + name, "not here")
    for name in ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"]:
        if name in os.environ:
            check.add("variable." + name, os.environ[name])


def facts(check):
    """Measures launches, events, graphs, signals, copies and allocations with tests/gpu/cuda/gpu_facts."""
    _run_facts(check, "gpu_facts", [], check.seconds_left())


def nccl(check):
    """Tries NCCL alone: one rank, and two processes on the one GPU."""
    paths = machine.find_library("libnccl")
    if not paths:
        raise programs.Skipped("there is no libnccl.so here")
    check.add("library", paths[0])
    failures = []
    for mode, seconds in [("one", 40), ("pair", 45)]:
        try:
            _run_facts(check, "nccl_facts", [paths[0], mode], min(seconds, check.seconds_left()))
        except (programs.Failed, programs.OutOfTime) as failure:
            check.add(mode + ".failed", str(failure))
            failures.append(mode)
    if failures:
        raise programs.Failed("NCCL fails: " + "; ".join(failures))


def _run_facts(check, program, arguments, seconds):
    """Runs a program that prints facts, and adds each as a row. The program is built here if the bundle lacks it."""

    def add(line):
        if line.startswith('{"fact"'):
            fact = json.loads(line)
            check.add(fact["fact"], fact["value"], fact.get("unit", ""))

    path = check.program(program)
    if path is None:
        try:
            path = bundle.build_facts(program, tempfile.mkdtemp(prefix="weir-gpu-check-"))
        except bundle.CannotPack as reason:
            raise programs.Failed(str(reason)) from None
    programs.must_run([path, *arguments], seconds, on_line=add, log=check.log)
