"""Tests the page of a run that goes on in a real browser, and `weir top`, while a job trains, ends and is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import unittest
import urllib.error
import urllib.request

from tests.processes import census
from tests.processes import weir_jobs
from tests.view import view_case

TWO = ("--mesh", "dp=2", "--processes", "2")
ENDLESS = ("--steps", "100000000")
# In place of ssh: every host is this machine.
SSH = """#!/bin/sh
while :; do case "$1" in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
exec sh -c "$*"
"""
CLUSTER = """
device { name: "core" bytes_per_second: 1e10 peak { dtype: "f32" flops_per_second: 1e12 } }
host { device: "core" devices: 1 }
"""


def state_of(address):
    """Returns the state that a page of this address shows."""
    with urllib.request.urlopen(address + "live?from=0") as answer:
        return json.load(answer)["state"]


class Live(view_case.ViewCase):
    def setUp(self):
        super().setUp()
        self.write_job()

    def start_viewed(self, *arguments):
        """Starts a job with --view, and returns it with the address of its page."""
        job = self.place.start("--view", *arguments)
        job.wait_for_step()
        return job, re.search(r"^view: (http://127\.0\.0\.1:\d+/[0-9a-f]{32}/)$", job.errors(), re.MULTILINE).group(1)

    def attach(self, job):
        """Serves the run by a process of its own, and returns the address."""
        return self.serve("--attach", str(job.starter.pid))

    def top(self, job, *flags):
        return self.place.run("top", str(job.starter.pid), *flags).stdout

    def step_shown(self):
        shown = self.browser.until("a step", "return (document.body.innerText.match("
                                             "/step\\s([\\d,]+)\\s*of/) || [])[1]")
        return int(shown.replace(",", ""))

    def await_text(self, text):
        self.browser.until(text, "return document.body.innerText.includes(arguments[0])", text)

    def viewer_of(self, job):
        """Returns the process that serves the page of --view."""
        (viewer,) = [pid for pid in census.children_of(job.starter.pid) if census.arguments_of(pid)[1:2] == ["view"]]
        return viewer

    def test_the_page_follows_the_run_to_its_end(self):
        job, address = self.start_viewed(*TWO, *ENDLESS)
        self.browser.open(address)
        self.browser.messages()  # those of the page before, whose server is gone
        self.browser.until("two processes", "return document.querySelectorAll('tbody tr').length >= 2 &&"
                                            "document.body.innerText.includes('ago')")
        self.await_text("loss")
        before = self.step_shown()
        self.browser.until("a later step", "return Number(document.body.innerText.match(/step\\s([\\d,]+)\\s*of/)[1]"
                                           ".replaceAll(',', '')) > arguments[0]", before)
        curves = self.browser.until("five curves", "const all = [...document.querySelectorAll('svg')];"
                                    "return all.length === 5 && all.map(s => s.getAttribute('aria-label'))")
        self.expect_parts(state_of(address), curves[-1])
        self.assertEqual([url for url in self.browser.loaded() if not url.startswith(address)], [])
        self.assertEqual([m for m in self.browser.messages() if "favicon" not in m], [])
        os.kill(next(pid for pid, rank in job.workers().items() if rank == "1"), signal.SIGKILL)
        self.await_text("The run has ended with exit code 137.")
        self.assertEqual(job.wait().code, 137)
        self.assertGreaterEqual(self.step_shown(), before)
        weir_jobs.until("the viewer ends, too", lambda: not self.place.processes(), 60)

    def expect_parts(self, state, stack):
        """Expects that the page shows where the time of a step goes, with every colour's name beside it."""
        for name in state["part_names"]:
            self.assertIn(f"{name} ", stack)
        self.assertRegex(stack, r"^time of a step by cause from step [\d,]+ to step [\d,]+; of the last: compute ")
        tables = "return [...document.querySelectorAll('[role=region]')].map(t => t.getAttribute('aria-label'))"
        self.browser.until("the ranks", f"{tables}.includes('Ranks')")
        self.assertEqual(self.browser.run(tables), ["The last steps by cause, mean of all ranks", "Ranks", "Processes",
                                                    "What the run said"])
        bars = self.browser.run("return [...document.querySelectorAll('[aria-label=Ranks] .stack')].map(b => "
                                "[b.getAttribute('aria-label'), b.children.length, b.getBoundingClientRect().width])")
        self.assertEqual(len(bars), 2)
        for label, drawn, width in bars:
            self.assertRegex(label, r"^compute [\d.]+\s%, packing and combining [\d.]+\s%, ")
            self.assertGreater(drawn, 1)
            self.assertGreater(width, 100)
        self.assertRegex(self.browser.run("return document.querySelector('[aria-label=Processes]').innerText"), r"MiB")
        self.await_text("MFU is unknown, because the peak is unknown: weir calibrate JOB --keep")

    def expect_good_end(self, job):
        """Interrupts the run, which then writes its weights."""
        os.kill(job.starter.pid, signal.SIGINT)
        self.assertEqual(job.wait(120).code, 130)
        self.assertGreater(len(self.place.bytes_of("weights.st")), 1000)
        weir_jobs.until("the viewer ends, too", lambda: not self.place.processes(), 60)

    def test_a_run_does_not_need_its_viewer_and_the_page_keeps_what_it_has(self):
        job, address = self.start_viewed(*ENDLESS, "--save", "weights.st")
        self.browser.open(address)
        shown = self.step_shown()
        os.kill(self.viewer_of(job), signal.SIGKILL)
        self.await_text("Weir does not answer")
        self.assertGreaterEqual(self.step_shown(), shown)
        self.expect_good_end(job)

    def test_slow_and_many_connections_do_not_reach_the_run(self):
        job, address = self.start_viewed(*ENDLESS, "--save", "weights.st")
        host, port = re.fullmatch(r"http://([\d.]+):(\d+)/.*", address).groups()
        idle = [socket.create_connection((host, int(port))) for _ in range(200)]
        for connection in idle[:20]:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x")
        self.expect_good_end(job)
        for connection in idle:
            connection.close()

    def test_a_page_of_its_own_process_tells_how_the_run_ended(self):
        job = self.place.start(*TWO, *ENDLESS)
        job.wait_for_step()
        address = self.attach(job)
        self.browser.open(address)
        os.kill(job.wait_for_workers(2)["1"], signal.SIGKILL)
        self.assertEqual(job.wait().code, 137)
        self.await_text("The run has ended with exit code 137.")
        report = self.browser.run("return document.querySelector('pre').innerText")
        self.assertRegex(report, r"first failure: rank 1 \(pid \d+\): killed by SIGKILL")
        self.browser.open(address)  # a reader that comes later
        self.await_text("The run has ended with exit code 137.")

    def test_a_restart_is_told_and_the_page_follows_the_run_on(self):
        job = self.place.start(*TWO, *ENDLESS, "--on-failure", "restart", "--checkpoint", "c/",
                               "--checkpoint-every", "20", "--keep", "2")
        job.wait_for_text("checkpoint of step 20 written")
        address = self.attach(job)
        self.browser.open(address)
        self.await_text("running")
        self.assertNotIn("restarts", self.browser.text())
        os.kill(job.wait_for_workers(2)["1"], signal.SIGKILL)
        job.wait_for_text("all processes are ready again")
        self.await_text("restarts")
        told = self.browser.until("the restart", "return (document.body.innerText.match("
                                                 "/1, the last after step ([\\d,]+)/) || [])[1]")
        self.await_text("The run is training")
        self.assertIn("first failure: rank 1", self.browser.run("return document.querySelector('details').textContent"))
        self.assertIn("WARNING: restart 1 after step", self.browser.text())
        (failure,) = self.browser.rows("Failures that the run has survived")
        self.assertEqual(failure[1], told)
        self.assertRegex(failure[2], r"^rank 1 \(pid \d+\): killed by SIGKILL")
        self.assertEqual(state_of(address)["epoch"], 2)
        self.await_text("epoch of the processes")
        self.assertRegex(self.top(job), rf"(?m)^1 restart so far, the last after step {told.replace(',', '')}$")
        with urllib.request.urlopen(address + "metrics") as answer:
            self.assertRegex(answer.read().decode(), r'(?m)^weir_restarts\{job_name="\w+"\} 1$')
        os.kill(job.starter.pid, signal.SIGINT)
        self.assertEqual(job.wait(120).code, 130)

    def test_every_failure_that_others_live_through_is_listed(self):
        job = self.place.start(*TWO, *ENDLESS, "--on-failure", "elastic")
        job.wait_for_step()
        address = self.attach(job)
        self.browser.open(address)
        workers = job.wait_for_workers(2)
        for rank in ("1", "0"):  # the second one while the first one returns, or a little later
            os.kill(workers[rank], signal.SIGKILL)
            job.wait_for_text(f"first failure: rank {rank} (pid {workers[rank]})")
        job.wait_for_text("a step is done again")
        self.browser.until("both failures", "return [...document.querySelectorAll('summary')].length === 2")
        rows = self.browser.rows("Failures that the run has survived")
        for row, rank in zip(rows, ("0", "1")):  # the last one first
            self.assertIn(f"rank {rank} (pid {workers[rank]}): killed by SIGKILL", row[2])
        self.assertRegex(self.top(job), r"(?m)^\d recover(y|ies) so far, the last of rank ")
        os.kill(job.starter.pid, signal.SIGINT)
        self.assertEqual(job.wait(120).code, 130)

    def test_a_run_over_hosts_shows_the_host_of_each_process_and_what_failed(self):
        with open(self.place.path("ssh"), "w", encoding="ascii") as file:
            file.write(SSH)
        os.chmod(self.place.path("ssh"), 0o755)
        job = self.place.start("--mesh", "dp=2", "--hosts", "left:1,right:1", "--ssh", "./ssh", *ENDLESS)
        job.wait_for_step()
        address = self.attach(job)
        self.browser.open(address)
        rows_of = "return [...document.querySelectorAll('[aria-label={}] tbody tr')]"
        self.browser.until("two processes at work", rows_of.format("Processes") +
                           ".filter(r => r.innerText.includes(' ago')).length === 2")
        rows = self.browser.rows("Processes")
        self.assertEqual([(row[0], row[1]) for row in rows], [("0", "left"), ("1", "right")])
        self.browser.until("the ranks with their hosts", rows_of.format("Ranks") +
                           ".map(r => r.cells[2].innerText).join() === 'left,right'")
        screen = self.top(job)
        for row in rows:
            self.assertRegex(screen, rf"(?m)^{row[0]} +{row[1]} +{row[2]} ")
        self.assertTrue(all(len(line) <= 80 for line in screen.splitlines()), screen)
        os.kill(int(rows[1][2]), signal.SIGKILL)
        self.assertEqual(job.wait().code, 137)
        self.await_text("The run has ended with exit code 137.")
        self.assertRegex(self.browser.run("return document.querySelector('pre').innerText"),
                         rf"first failure: rank 1 \(pid {rows[1][2]} on right\): killed by SIGKILL")

    def test_a_killed_starter_is_told(self):
        job = self.place.start(*ENDLESS)
        job.wait_for_step()
        self.browser.open(self.attach(job))
        job.starter.kill()
        job.wait()
        self.await_text("its process ended without a word")

    def test_top_shows_the_run_and_its_processes(self):
        job = self.place.start(*TWO, *ENDLESS)
        job.wait_for_step()
        workers = job.wait_for_workers(2)
        screen = weir_jobs.until("heartbeats", lambda: (text := self.top(job)).count("ms  ") >= 1 and text)
        self.assertRegex(screen, rf"^\S+  pid {job.starter.pid}  training for ")
        for rank, pid in workers.items():
            self.assertRegex(screen, rf"(?m)^{rank} +{pid} ")
        self.assertTrue(all(len(line) <= 80 for line in screen.splitlines()), screen)
        screen = weir_jobs.until("a second of steps", lambda: (text := self.top(job)).count(" MiB  ") >= 2 and text)
        self.assertRegex(screen, r"(?m)^A STEP BY CAUSE +TIME$")
        self.assertRegex(screen, r"(?m)^compute +\d.* +\d+ % \[#")
        self.assertTrue(all(len(line) <= 80 for line in screen.splitlines()), screen)
        state = json.loads(self.top(job, "--json"))
        self.assertEqual(state["facts"]["mesh"], "dp=2")
        self.assertAlmostEqual(sum(state["step"]["parts"]), 1, delta=0.001)
        self.assertEqual(len(state["facts"]["bytes_of_rank"]), 2)
        self.assertTrue(all(worker["resident_bytes"] > 1 << 20 for worker in state["workers"]))
        self.assertEqual([worker["pid"] for worker in state["workers"]], [workers["0"], workers["1"]])
        job.end()
        gone = subprocess.run([self.place.program, "top", str(job.starter.pid)], env=self.place.environment,
                              capture_output=True, text=True)
        self.assertEqual(gone.returncode, 66)
        self.assertIn("W0891", gone.stderr)

    def test_attach_needs_no_name_where_one_run_goes_on(self):
        # Other tests may run jobs at the same time, and are then listed.
        job = self.place.start(*ENDLESS)
        job.wait_for_step()
        asked = subprocess.Popen([self.place.program, "view", "--attach", "--no-open"], env=self.place.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = asked.stdout.readline()
        asked.terminate()
        _, err = asked.communicate(timeout=60)
        self.assertTrue(first.startswith("http://") or ("W0891" in err and str(job.starter.pid) in err), (first, err))
        job.end()

    def test_a_peak_gives_the_model_flops_utilisation_everywhere(self):
        with open(self.place.path("c.textproto"), "w", encoding="ascii") as file:
            file.write(CLUSTER)
        job, address = self.start_viewed(*ENDLESS, "--cluster", "c.textproto", "--metrics", "m.jsonl")
        state = state_of(address)
        step, facts = state["step"], state["facts"]
        self.assertAlmostEqual(step["mfu"] * step["step_seconds"] * 1e12, facts["flops_per_step"],
                               delta=facts["flops_per_step"] * 1e-6)
        self.assertRegex(self.top(job), r"FLOP/s  MFU [\d.e-]+ %\n")
        self.browser.open(address)
        self.await_text("MFU of 1.00 TFLOP/s")
        with urllib.request.urlopen(address + "metrics") as answer:
            self.assertIn("\nweir_mfu_ratio{", answer.read().decode())
        with open(self.place.path("m.jsonl"), encoding="ascii") as file:
            self.assertGreater(json.loads(file.readline())["mfu"], 0)
        job.end()

    def test_metrics_are_for_who_knows_the_address(self):
        job, address = self.start_viewed(*ENDLESS)
        with urllib.request.urlopen(address + "metrics") as answer:
            text = answer.read().decode()
        steps = [line for line in text.splitlines() if line.startswith("weir_step{")]
        self.assertEqual(len(steps), 1)
        self.assertGreater(float(steps[0].split()[-1]), 0)
        parts = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("weir_step_part_seconds{")]
        (whole,) = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("weir_step_seconds{")]
        self.assertAlmostEqual(sum(parts) / whole, 1, delta=0.001)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(re.sub(r"/[0-9a-f]{32}/", "/metrics", address))
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        job.end()


if __name__ == "__main__":
    unittest.main()
