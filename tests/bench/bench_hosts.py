"""The section `hosts` of tools/bench trains on two hosts whose link is slow.

One run has transfers that know hosts, and the other run has transfers that do not. The hosts are network namespaces of
this machine (tests/hosts/network_lab.py) with two processes each, and a token bucket limits what each host sends. The
bench counts the bytes that a host sends at the interface of the host. `weir sim` predicts both runs from a calibration
of this machine and the speed of the bucket.
"""

import json
import os
import pathlib
import re
import statistics
import tempfile
import unittest

from tests.bench import bench_report
from tests.hosts.network_lab import ENTER, NetworkLab

NET = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 256, "sequence": 16, "batch": 8}
SMOKE_NET = {**NET, "hidden": 32, "sequence": 8}
BYTES_PER_SECOND = 25_000_000  # on the wire
# A full Ethernet frame of 1,514 bytes carries 1,448 bytes of TCP's payload (each segment has 12 bytes of options).
PAYLOAD_PER_SECOND = BYTES_PER_SECOND * 1448 // 1514
WARMUP_STEPS = 2
ONE_LEVEL = ("--set", "mesh.devices_per_host=1")


def hosts_rows(bench):
    rounds, steps = bench.sized((5, 12), (2, 6), (1, 2))
    meshes = bench.sized(("dp=4", "dp=2,tp=2"), ("dp=4",), ("dp=4",))
    rows = []
    try:
        with tempfile.TemporaryDirectory() as folder, NetworkLab(2) as lab:
            folder = pathlib.Path(folder)
            lab.limit(BYTES_PER_SECOND)
            flags = [part for name, value in bench.sized(NET, NET, SMOKE_NET).items() for part in ("--" + name, value)]
            job = folder / "job.textproto"
            job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags]), encoding="utf-8")
            for mesh in meshes:
                rows += rows_of(bench, lab, folder, [job, "--mesh", mesh], mesh, rounds, steps)
    except unittest.SkipTest as skipped:
        print(f"hosts: {skipped}")
    return rows


def rows_of(bench, lab, folder, job, mesh, rounds, steps):
    cluster = cluster_of_two_hosts(bench, folder, job)
    seconds, counted = {(): [], ONE_LEVEL: []}, {(): [], ONE_LEVEL: []}
    for _ in range(rounds):
        for options in seconds:
            wall, sent = trained(bench, lab, folder, [*job, *options], steps)
            seconds[options].append(wall * 1e3)
            counted[options].append(sent / 1e6)
    rows = [bench_report.row(f"{mesh}: {what}", unit, of[()], "one level", of[ONE_LEVEL], "lower", None, note)
            for what, unit, of, note in (("a step", "ms", seconds, "2 hosts of 2 processes, 25 MB/s between them"),
                                         ("bytes that a host sends in a step", "MB", counted, ""))]
    for options, name in (((), "two levels"), (ONE_LEVEL, "one level")):
        report = json.loads(bench.run([bench.weir, "sim", *job, *options, "--cluster", cluster, "--json",
                                       "--steps", 3]))
        predicted = report["step_seconds"] * 1e3
        error = predicted / statistics.median(seconds[options]) - 1
        rows.append(bench_report.row(f"{mesh}: {name}, predicted", "ms", [predicted] * rounds, "measured",
                                     seconds[options], "lower", None, f"{error * 100:+.1f} %"))
    return rows


def trained(bench, lab, folder, job, steps):
    """Returns the median time of a step, and the bytes that the busier host sends in a step."""
    metrics = folder / "metrics.jsonl"
    slots = ",".join(f"{host}:2" for host in lab.hosts)
    environment = {"WEIR_TEST_STARTER_ADDRESS": lab.address}
    before = [lab.bytes_from(host) for host in range(2)]
    bench.run(["ip", "netns", "exec", lab.hub, "env", *[f"{name}={value}" for name, value in environment.items()],
               os.path.abspath(bench.weir), "train", *job, "--steps", WARMUP_STEPS + steps, "--threads", 1, "--metrics",
               metrics, "--hosts", slots, "--ssh", ENTER, "--logs", folder / "logs"])
    sent = max(lab.bytes_from(host) - before[host] for host in range(2))
    walls = [json.loads(line)["step_seconds"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    return statistics.median(walls[WARMUP_STEPS:]), sent / (WARMUP_STEPS + steps)


def cluster_of_two_hosts(bench, folder, job):
    """Calibrates this machine for the job, and returns a file that halves it into two hosts with the slow link."""
    cluster = folder / "cluster.textproto"
    bench.run([bench.weir, "calibrate", *job, "-o", cluster, "--steps", 5, "--between-processes", "auto", "--logs",
               folder / "logs"])
    text = cluster.read_text(encoding="utf-8")
    device = re.search(r'device \{\s*name: "([^"]*)"', text).group(1)
    cores = max(1, (os.cpu_count() or 2) // 2)
    text = re.sub(r"^(host|between_hosts) \{.*?^\}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text += (f'host {{ count: 2 device: "{device}" devices: 2 cores: {cores} }}\n'
             f"between_hosts {{ latency_ns: 50e3 bytes_per_second: {PAYLOAD_PER_SECOND} shared: HOST }}\n")
    cluster.write_text(text, encoding="utf-8")
    return cluster
