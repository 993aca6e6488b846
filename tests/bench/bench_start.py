"""The section `start` of tools/bench starts jobs on many hosts: from the command to the first step.

The hosts are agents of this machine, each with one worker, behind a command that stands for ssh. The names of the hosts
are addresses, so that no resolver is asked. The rows therefore show the time of all processes together, and not the
time that as many machines would need. On real hosts, the starter's own share of the time remains.
"""

import json
import pathlib
import tempfile
import time

from tests.bench import bench_programs, bench_report

# Runs the command on this machine: `here -o OPTION ... -- HOST COMMAND`.
HERE = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec sh -c \"$*\"\n"
# Hosts and mesh.
SIZES = ((16, "dp=4,tp=4"), (64, "dp=8,tp=8"), (256, "dp=16,tp=16"))
NET = {"layers": 2, "hidden": 64, "heads": 16, "ffn": 64, "vocab": 256, "sequence": 8, "batch": 16}


def start_rows(bench):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        here = folder / "here"
        here.write_text(HERE, encoding="utf-8")
        here.chmod(0o755)
        job = folder / "job.textproto"
        flags = [part for name, value in NET.items() for part in ("--" + name, value)]
        job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags]), encoding="utf-8")
        for hosts, mesh in bench.sized(SIZES, SIZES[:2], ((4, "dp=2,tp=2"),)):
            rows += rows_of(bench, folder, job, here, hosts, mesh, bench.sized(3, 2, 1))
    return rows


def rows_of(bench, folder, job, here, hosts, mesh, rounds):
    of_tree, of_flat = [], []
    for _ in range(rounds):
        of_tree.append(started(bench, folder, job, here, hosts, mesh, 8))
        of_flat.append(started(bench, folder, job, here, hosts, mesh, 4096))
    what = f"{hosts} hosts with a worker each, {mesh}"
    note = "all processes on this machine"
    return [
        bench_report.row(f"{what}: to the first step", "s", [run["seconds"] for run in of_tree], "all from the starter",
                         [run["seconds"] for run in of_flat], "lower", None, note),
        bench_report.row(f"{what}: commands that the starter runs", "", [run["commands"] for run in of_tree],
                         "all from the starter", [run["commands"] for run in of_flat], "lower", None,
                         "eight from each machine"),
        bench_report.row(f"{what}: memory of a host's agent and worker", "MiB", [run["host_mib"] for run in of_tree],
                         "", [], "lower", None, "shared pages counted in parts"),
    ]


def started(bench, folder, job, here, hosts, mesh, fan_out):
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    names = ",".join(f"127.1.{host // 200}.{host % 200 + 1}" for host in range(hosts))
    command = [bench.weir, "train", job, "--mesh", mesh, "--steps", 100_000, "--threads", 1, "--hosts", names, "--ssh",
               here, "--fan-out", fan_out, "--metrics", metrics, "--logs", folder / "logs", "--stuck-after", 600,
               "--dead-after", 120]
    begin = time.monotonic()
    with bench.start(command, threads=1) as program:
        while program.process.poll() is None and not (metrics.exists() and metrics.stat().st_size > 0):
            time.sleep(0.02)
            if time.monotonic() - begin > bench.limit_s:
                raise program.overdue(bench.limit_s)
        seconds = time.monotonic() - begin
        return {"seconds": seconds, **observed(bench, program, metrics, hosts)}


def observed(bench, program, metrics, hosts):
    """Returns the commands that the starter has run and the memory of a host, and ends the job."""
    of_job = [pid for pid in map(int, filter(str.isdigit, _names("/proc"))) if _is_of(pid, str(bench.weir))]
    agents = [pid for pid in of_job if "agent" in _words(pid)]
    starter = [pid for pid in of_job if "train" in _words(pid)]
    memory = sum(_resident_bytes(pid) for pid in of_job if pid not in starter)
    commands = sum(_parent(pid) in starter for pid in agents)
    program.process.terminate()
    program.wait(bench.limit_s)
    if not metrics.exists():
        raise bench_programs.ProgramError("ended without a step",
                                          f"{' '.join(program.command)} ended without a step\n{program.printed()}")
    json.loads(metrics.read_text(encoding="utf-8").splitlines()[0])
    return {"commands": commands, "host_mib": memory / hosts / (1 << 20)}


def _names(folder):
    return [path.name for path in pathlib.Path(folder).iterdir()]


def _words(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_of(pid, program):
    words = _words(pid)
    return bool(words) and words[0] == program


def _parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def _resident_bytes(pid):
    """Returns the memory of a process, in which a page that n processes share counts as a part of n."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
