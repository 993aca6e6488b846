"""Tests that Perfetto's trace processor reads every kind of trace that Weir writes.

The trace processor reads a trace without an error. The trace has a process per rank, slices that end, and arrows that
have two ends. The trace processor is the one of Perfetto's pages, run by Node.js. `tools/deps/install --with-perfetto`
fetches the trace processor.
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import unittest

from tests.processes import weir_jobs

FOLDER = os.environ.get(
    "WEIR_PERFETTO",
    os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".cache")),
                 "weir/perfetto"))
NODE = shutil.which("node") or "/usr/bin/node"
PROCESSOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_processor.js")

CLUSTER = """name: "a host"
device { name: "d" memory_bytes: 1e9 act_ns: 500 kernel_ns: 1000 bytes_per_second: 1e11 \
peak { dtype: "f32" flops_per_second: 1e12 efficiency: 0.5 } }
host { device: "d" devices: 4 count: 1 }
within_host { latency_ns: 2000 bytes_per_second: 1e10 message_ns: 300 }
"""

QUERIES = {
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    "open slices": "select name from slice where dur < 0",
    "ranks": "select distinct p.name from process p where p.name glob 'rank *' order by 1",
    "acts": "select count(*) as n, count(distinct track_id) as tracks from slice where category = 'act'",
    "acts without a step": "select s.name from slice s where category = 'act' and not exists "
                           "(select 1 from args a where a.arg_set_id = s.arg_set_id and a.key = 'debug.step')",
    "slices over their neighbours": "select a.name from slice a where a.depth > 0",
    "flows": "select count(*) as n from flow",
    "flows back in time": "select a.name from flow f join slice a on f.slice_out = a.id "
                          "join slice b on f.slice_in = b.id where a.ts > b.ts + b.dur",
}


@unittest.skipUnless(os.path.exists(os.path.join(FOLDER, "engine_bundle.js")) and os.path.exists(NODE),
                     f"no trace processor in {FOLDER}: tools/deps/install --with-perfetto")
class Perfetto(weir_jobs.JobCase):
    def ask(self, path):
        """Runs all queries on a trace and returns {what: rows}."""
        result = subprocess.run([NODE, PROCESSOR, FOLDER, path, *QUERIES.values()], capture_output=True, text=True,
                                timeout=300, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return dict(zip(QUERIES, map(json.loads, result.stdout.splitlines())))

    def expect_sound(self, name, ranks, flows):
        found = self.ask(self.place.path(name))
        for none in ("errors", "open slices", "acts without a step", "slices over their neighbours",
                     "flows back in time"):
            self.assertEqual(found[none][:5], [], none)
        self.assertEqual([row["name"].split(" \u00b7 ")[0] for row in found["ranks"]],
                         [f"rank {rank}" for rank in ranks])
        self.assertGreater(found["acts"][0]["n"], 100)
        self.assertGreaterEqual(found["acts"][0]["tracks"], 3 * len(ranks))
        self.assertEqual(found["flows"][0]["n"] > 0, flows)

    def test_traces_of_runs_in_one_process_and_in_several(self):
        self.place.write_job(*weir_jobs.SMALL, "--steps", "8")
        for mesh, processes, ranks in (("", 0, 1), ("dp=2", 0, 2), ("tp=2", 2, 2), ("dp=2,pp=2", 4, 4)):
            with self.subTest(mesh=mesh, processes=processes):
                self.place.train("--mesh", mesh, "--trace", "t.pftrace",
                                 *(["--processes", str(processes)] if processes else []))
                self.expect_sound("t.pftrace", range(ranks), ranks > 1)

    def test_traces_of_simulated_runs(self):
        self.place.write_job(*weir_jobs.SMALL)
        with open(self.place.path("cluster.textproto"), "w", encoding="utf-8") as file:
            file.write(CLUSTER)
        queues = ("runtime.device=walled", "runtime.device_queues=4", "runtime.device_depth=64")
        for mesh, ranks, settings in (("dp=2,tp=2", 4, ()), ("pp=4", 4, ()), ("dp=2,tp=2", 4, queues)):
            with self.subTest(mesh=mesh, settings=settings):
                self.place.run("sim", "job.textproto", "--cluster", "cluster.textproto", "--mesh", mesh,
                               "--trace", "s.pftrace", *(word for text in settings for word in ("--set", text)))
                self.expect_sound("s.pftrace", range(ranks), True)

    def test_the_trace_of_a_job_that_failed(self):
        self.place.write_job(*weir_jobs.SMALL, "--steps", "1000000")
        job = self.place.start("--mesh", "dp=4", "--processes", "4", "--trace", "t.pftrace")
        workers = job.wait_for_workers(4)
        job.wait_for_step()
        os.kill(workers["2"], signal.SIGKILL)
        ended = job.wait()
        self.assertIn("trace of the failed job written to t.pftrace; from memory that outlived the process: rank 2\n",
                      ended.err)
        self.expect_sound("t.pftrace", range(4), True)


if __name__ == "__main__":
    unittest.main()
