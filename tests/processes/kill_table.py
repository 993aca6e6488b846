"""Kills processes of jobs whose other processes live on, and prints how long detection and recovery take.

A job loses one process, two at once, one while a checkpoint is written, or another while the job recovers. Each job has
to end with the weights and metrics of a run without failure, and to leave nothing behind. This command kills 200:
WEIR=bazel-bin/tools/weir python3 -m tests.processes.kill_table --kills 200
"""

import argparse
import dataclasses
import os
import random
import re
import signal
import statistics
import sys
import time

from tests.processes import census
from tests.processes import weir_jobs

KINDS = {"one, at any time": 5, "two at once": 2, "one during a checkpoint": 2, "another during the recovery": 2}
MESH = ("--mesh", "dp=2,tp=2", "--processes", "4")
PROCESSES = 4
CHECKPOINTS = "checkpoints"
STEPS_PER_LOSS = 60  # so many that a job outlasts the pauses of a disturber on a loaded machine
FAULTY_JOBS_MAX = 10  # then the table ends early
FAILURE = "first failure: "
# What follows a loss: (text, whether the other processes live on).
DONE = re.compile(r"a step is done again, (\d+\.\d+) s after the failure: (.*)")
READY = re.compile(r"all processes are ready again, \d+\.\d+ s after the failure")
AGAIN = re.compile(r"; (\d+) steps? must be done again")
RESTART = re.compile(r"WARNING: restart \d+ after step (\d+): the job goes on from (?:\S*step-(\d+)|its beginning)")


@dataclasses.dataclass
class Loss:
    """A Loss is what one disturbance of a job came to. Times are from the first kill; None: the job ended before."""

    kind: str
    ranks: list
    detection_s: float | None = None
    recovery_s: float | None = None
    steps_lost: int = 0
    how: str = ""  # where the states came from


def flags(kills):
    """Returns the flags of a job that is to survive so many kills."""
    return ("--on-failure", "elastic", "--checkpoint", CHECKPOINTS + "/", "--checkpoint-every", str(STEPS_PER_LOSS),
            "--keep", "2", "--max-restarts", str(2 * kills + 2))


def steps_for(losses):
    """Returns the number of steps of a job with so many losses."""
    return str(STEPS_PER_LOSS * (losses + 2))


class Disturber:
    """A Disturber kills processes of one job."""

    def __init__(self, place, job, chance):
        self._place, self._job, self._chance = place, job, chance
        self._last = []  # the ranks killed last: the same failure again and again at one place ends a job

    def is_over(self):
        return self._job.starter.poll() is not None

    def _await(self, what, holds):
        weir_jobs.until(what, lambda: holds() or self.is_over())

    def _num_back(self):
        text = self._job.errors()
        return len(DONE.findall(text)) + len(READY.findall(text))

    def _writes_checkpoint(self):
        try:
            return any(".partial-" in name for name in os.listdir(self._place.path(CHECKPOINTS)))
        except FileNotFoundError:
            return False

    def _kill(self, count):
        """Kills so many processes at once, others than the last. Returns their ranks."""
        workers = sorted((rank, pid) for pid, rank in self._job.workers().items() if rank not in self._last)
        if len(workers) < count:
            return []
        killed = []
        for rank, pid in self._chance.sample(workers, count):
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(rank)
            except ProcessLookupError:
                pass
        self._last = killed or self._last
        return killed

    def lose(self, kind):
        """Disturbs the job once, and waits until it goes on. Returns the Loss; None: the job has ended."""
        if kind == "one during a checkpoint":
            self._await("a checkpoint", self._writes_checkpoint)
        else:
            time.sleep(self._chance.uniform(0, 0.4))
        text_before, num_back = len(self._job.errors()), self._num_back()
        begin_s = time.monotonic()
        loss = Loss(kind, self._kill(2 if kind == "two at once" else 1))
        if self.is_over() or not loss.ranks:
            return None
        self._await("a failure", lambda: FAILURE in self._job.errors()[text_before:])
        if self.is_over():
            return loss
        loss.detection_s = time.monotonic() - begin_s
        if kind == "another during the recovery":
            time.sleep(self._chance.uniform(0, 0.15))
            num_back = self._num_back()
            loss.ranks += self._kill(1)
        self._await("the next step", lambda: self._num_back() > num_back)
        if self.is_over():
            return loss
        loss.recovery_s = time.monotonic() - begin_s
        news = self._job.errors()[text_before:]
        loss.steps_lost = sum(int(steps) for steps in AGAIN.findall(news))
        loss.steps_lost += sum(int(done) - int(step or 0) for done, step in RESTART.findall(news))
        last = DONE.findall(news)
        loss.how = ("a restart of all" if RESTART.search(news) else
                    "memory" if last and "the memory of" in last[-1][1] else "a checkpoint")
        return loss


def _seconds(values):
    return f"{statistics.median(values):.2f} s, {max(values):.2f} s" if values else "-"


def table(losses, step_s):
    """Returns the table, in Markdown. `step_s` is the time of a step."""
    lines = ["| loss of | losses | kills | detection: median, worst | recovery: median, worst | "
             "steps done again: median, worst | states from |", "|---|---|---|---|---|---|---|"]
    for kind in [*KINDS, "all"]:
        some = [loss for loss in losses if kind in (loss.kind, "all")]
        back = [loss for loss in some if loss.recovery_s is not None]
        steps = [loss.steps_lost for loss in back]
        ways = [f"{how}: {sum(loss.how == how for loss in back)}" for how in sorted({loss.how for loss in back})]
        again = (f"{statistics.median(steps):g} ({statistics.median(steps) * step_s:.2f} s), "
                 f"{max(steps)} ({max(steps) * step_s:.2f} s)" if steps else "-")
        lines.append(f"| {kind} | {len(some)} | {sum(len(loss.ranks) for loss in some)} | "
                     f"{_seconds([loss.detection_s for loss in some if loss.detection_s is not None])} | "
                     f"{_seconds([loss.recovery_s for loss in back])} | {again} | {', '.join(ways) or '-'} |")
    return "\n".join(lines)


class Series:
    """A Series is a number of jobs of one model, with the results of a run without failure."""

    def __init__(self, losses_per_job, weights, rows):
        """`weights` and `rows` by step are the results of a run without failure, of steps_for() steps."""
        self.losses_per_job = losses_per_job
        self.steps = steps_for(losses_per_job)
        self._weights, self._rows = weights, rows

    @classmethod
    def trained(cls, losses_per_job):
        """Returns a Series whose run without failure is trained now."""
        place = weir_jobs.Place()
        try:
            place.write_job(*weir_jobs.SMALL, "--steps", steps_for(losses_per_job))
            place.train(*MESH, "--save", "good.st", "--metrics", "good.jsonl")
            rows = {row["step"]: row for row in place.metrics("good.jsonl")}
            return cls(losses_per_job, place.bytes_of("good.st"), rows)
        finally:
            place.close()

    def run(self, chance, kills_max):
        """Runs one job. Returns (losses, faults, the seconds of its steps)."""
        place = weir_jobs.Place()
        try:
            memory, sockets = census.SharedMemory(), census.Sockets()
            place.write_job(*weir_jobs.SMALL, "--steps", self.steps)
            job = place.start(*MESH, "--save", "weights.st", "--metrics", "metrics.jsonl", "--transport",
                              chance.choice(("shm", "tcp")), *flags(2 * self.losses_per_job))
            job.wait_for_step()
            disturber, losses = Disturber(place, job, chance), []
            while len(losses) < self.losses_per_job and sum(len(loss.ranks) for loss in losses) < kills_max:
                sockets.see(job.pids())
                loss = disturber.lose(chance.choices(list(KINDS), list(KINDS.values()))[0])
                if loss is None:
                    break
                losses.append(loss)
            ended = job.wait()
            faults = self._faults(place, ended)
            left = memory.leftovers() + sockets.leftovers() + os.listdir(place.temporary)
            faults += [f"left behind: {name}" for name in left]
            if faults:
                faults.append(ended.err)
            return losses, faults, self._step_seconds(place)
        finally:
            place.close()

    def _faults(self, place, ended):
        if ended.code != 0:
            return [f"the job ended with {ended.code}"]
        faults = []
        if place.bytes_of("weights.st") != self._weights:
            faults.append("the weights differ")
        rows = place.metrics("metrics.jsonl")
        different = [row["step"] for row in rows if row != self._rows[row["step"]]]
        missing = sorted(set(self._rows) - {row["step"] for row in rows})
        if different or missing:
            faults.append(f"rows of these steps differ: {different}, are missing: {missing}")
        if place.processes():
            faults.append(f"processes are left: {place.processes()}")
        return faults

    @staticmethod
    def _step_seconds(place):
        text = place.bytes_of("metrics.jsonl").decode()
        return [float(seconds) for seconds in re.findall(r'"step_seconds":([0-9.e+-]+)', text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill [200]")
    parser.add_argument("--losses-per-job", type=int, default=10, help="disturbances of one job [10]")
    parser.add_argument("--seed", type=int, default=weir_jobs.seed(), help="repeats the choices of a run")
    arguments = parser.parse_args()
    print(f"--seed {arguments.seed}", flush=True)
    chance = random.Random(arguments.seed)
    series = Series.trained(arguments.losses_per_job)
    losses, faulty, step_s, jobs, left = [], 0, [], 0, arguments.kills
    while left > 0 and faulty < FAULTY_JOBS_MAX:
        some, faults, seconds = series.run(chance, left)
        jobs += 1
        losses += some
        step_s += seconds
        left = arguments.kills - sum(len(loss.ranks) for loss in losses)
        faulty += bool(faults)
        for fault in faults:
            print(f"job {jobs}: {fault}", flush=True)
        print(f"{jobs} jobs, {arguments.kills - left} kills, {faulty} jobs with faults", file=sys.stderr, flush=True)
    print(table(losses, statistics.median(step_s)))
    print(f"{jobs} jobs of {series.steps} steps, {faulty} of them with faults (wrong results, or something left behind)")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
