"""Plants one problem per run, and tests that the verdict names it among its first causes.

The runs are simulated, so nothing depends on this machine. Each problem is one change to a run without problems, whose
verdict names nothing that costs a tenth of a step. docs/how_to/read_a_trace.md has the table.
"""

import dataclasses
import json
import unittest

from tests.processes import weir_jobs

FIRST = 2  # causes among which the planted one must be
COSTLY = 0.1  # of a step

DEVICE = """device {{ name: "{name}" memory_bytes: 1e9 act_ns: {act_ns} kernel_ns: {kernel_ns}
  bytes_per_second: {bytes_per_second} peak {{ dtype: "f32" flops_per_second: {flops} efficiency: 0.5 }} }}
"""
LINK = "{place} {{ latency_ns: 2000 bytes_per_second: {bytes_per_second} message_ns: 300 }}\n"
FAST, THIN = 1e10, 1e8
PLAIN = ["--layers", "4", "--hidden", "128", "--heads", "4", "--ffn", "512", "--sequence", "64", "--batch", "16"]


def device(name="d", slower=1, act_ns=500):
    return DEVICE.format(name=name, act_ns=act_ns * slower, kernel_ns=1000 * slower, bytes_per_second=1e11 / slower,
                         flops=1e12 / slower)


def cluster(devices=device(), hosts='host { device: "d" devices: 4 }\n', within=FAST, between=FAST):
    return (devices + hosts + LINK.format(place="within_host", bytes_per_second=within) +
            LINK.format(place="between_hosts", bytes_per_second=between))


@dataclasses.dataclass
class Run:
    mesh: str
    job: list
    machines: str = dataclasses.field(default_factory=cluster)
    settings: list = dataclasses.field(default_factory=list)
    model: str = "gpt"


def micro_batches(count, layers=None):
    job = [*PLAIN, "--micro-batches", str(count)]
    if layers is not None:
        job[1] = str(layers)
    return job


class PlantedProblems(weir_jobs.JobCase):
    def causes_of(self, run):
        self.place.write_job(*run.job, model=run.model)
        with open(self.place.path("cluster.textproto"), "w", encoding="utf-8") as file:
            file.write(run.machines)
        self.place.run("sim", "job.textproto", "--cluster", "cluster.textproto", "--mesh", run.mesh, "--steps", "6",
                       "--trace", "s.pftrace", *(word for text in run.settings for word in ("--set", text)))
        why = json.loads(self.place.run("trace", "report", "s.pftrace", "--json").stdout)["why_slow"]
        text = " ".join(self.place.run("trace", "report", "s.pftrace").stdout.split())
        for cause in why["causes"]:
            self.assertIn(cause["text"], text, "text and JSON tell the same")
        self.assertEqual([c["share"] for c in why["causes"]], sorted((c["share"] for c in why["causes"]), reverse=True))
        return why["causes"]

    def expect(self, run, sentence):
        causes = self.causes_of(run)
        first = [cause for cause in causes[:FIRST] if cause["share"] >= COSTLY]
        self.assertTrue(any(sentence in cause["text"] for cause in first), (sentence, causes))

    def test_a_run_without_problems_has_no_costly_cause(self):
        self.assertEqual([c for c in self.causes_of(Run("dp=2", micro_batches(4))) if c["share"] >= COSTLY], [])

    def test_one_slot_everywhere(self):
        self.expect(Run("pp=2", micro_batches(8), settings=["runtime.registers=ONE"]), "registers are too few")

    def test_a_slow_rank(self):
        hosts = 'host { device: "d" devices: 1 count: 3 }\nhost { device: "slow" devices: 1 }\n'
        self.expect(Run("dp=4", micro_batches(2), cluster(device() + device("slow", 2), hosts)),
                    "rank 3 is slow: its acts take 2.0 times as long")

    def test_a_thin_link(self):
        hosts = 'host { device: "d" devices: 2 count: 2 }\n'
        self.expect(Run("pp=4", micro_batches(8), cluster(hosts=hosts, between=THIN)),
                    "the link between ranks 1 and 2 has ")

    def test_a_layout_that_moves_much(self):
        self.expect(Run("tp=4", micro_batches(2), cluster(within=3 * THIN)),
                    "messages on their way cost up to 74.")

    def test_a_cut_into_uneven_stages(self):
        self.expect(Run("pp=2", micro_batches(8, layers=3)), "work is uneven: rank 0 works ")

    def test_data_that_stalls(self):
        job = ["--layers", "1", "--hidden", "8", "--ffn", "8", "--pixels", "4096", "--batch", "4096"]
        self.expect(Run("", job, model="mlp"), "reading data takes ")

    def test_few_micro_batches(self):
        self.expect(Run("pp=4", micro_batches(1)), "the pipeline has few micro-batches, 1 for 4 stages")

    def test_a_slow_update(self):
        job = ["--layers", "4", "--hidden", "512", "--heads", "4", "--ffn", "2048", "--sequence", "8", "--batch", "1"]
        self.expect(Run("", job), "the update of the weights takes ")

    def test_a_collective_that_no_work_hides(self):
        self.expect(Run("dp=4", micro_batches(1), cluster(within=3 * THIN)), "most of all `reduce-scatter ")

    def test_acts_with_too_little_work(self):
        job = ["--layers", "4", "--hidden", "16", "--heads", "2", "--ffn", "32", "--sequence", "8", "--batch", "4"]
        self.expect(Run("dp=2", job, cluster(device(act_ns=50000))), "acts are too short: of the ")


if __name__ == "__main__":
    unittest.main()
