"""Breaks jobs at the places where they write, and prints a table of the drills.

A job goes on from a checkpoint and writes others. A drill kills a process of the job at a chosen system call of a save,
lets such a call fail, damages a checkpoint, kills all processes, or sends a signal. Afterwards a checkpoint has to be
there, a job that resumes has to end with the weights of a run without a fault, and no unfinished file may be left. A
damaged checkpoint has to be refused with the name of its file. Debian's package strace places the faults:
WEIR=bazel-bin/tools/weir python3 -m tests.processes.disk_drills --rounds 30
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from tests.processes import weir_jobs

MESH = ("--mesh", "dp=2")
STEPS, BEFORE, EVERY = 20, 10, 5
LIMIT_S = 60  # a drill that takes longer counts as a hang
# The system calls with which a job reads and writes its files: how often a process makes each of them, about. The call
# `write` is not among them: threads wake one another with it, which no disk can prevent.
CALLS = {"openat": 300, "pwrite64": 45, "fsync": 6, "msync": 3, "fallocate": 3, "linkat": 3, "rename": 4,
         "mkdir": 6, "rmdir": 2, "unlink": 3, "fchmod": 1}
FORMS = ("checkpoint.st", "checkpoints/")
SAVED = "weights.st"
INTERRUPTED = 130
KILLS_MAX = 3  # of all processes of one job
CRASHES = (70, 132, 134, 135, 136, 139)  # a fault of weir, and signals of a crash


class Drills:
    """A Drills is one job with its results without a fault, and the faults found so far."""

    def __init__(self, chance):
        self._chance = chance
        place = weir_jobs.Place()
        self._place = place
        place.write_job(*weir_jobs.SMALL, "--steps", str(STEPS))
        place.train(*MESH, "--save", "good.st")
        self._good = place.bytes_of("good.st")
        for form in FORMS:
            place.train(*MESH, "--steps", str(BEFORE), "--checkpoint", "before_" + form)
        self.results = {}  # by drill: [tried, as it should, not]
        self.without_fault = 0  # runs that make no such call

    def close(self):
        self._place.close()

    def _count(self, drill, fault, shown):
        row = self.results.setdefault(drill, [0, 0, 0])
        row[0] += 1
        row[2 if fault else 1] += 1
        if fault:
            print(f"{drill}: {fault}\n  {shown}", flush=True)

    def _path(self, name):
        return self._place.path(name)

    def _prepare(self, form):
        """Puts the checkpoint of step BEFORE in its place, and removes what an earlier drill has written."""
        for name in (*FORMS, SAVED):
            path = self._path(name.rstrip("/"))
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)
        source = self._path("before_" + form).rstrip("/")
        (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, self._path(form).rstrip("/"))

    def _words(self, form, processes):
        return [self._place.program, "train", "job.textproto", *MESH, "--processes", str(processes), "--resume", form,
                "--checkpoint", form, "--checkpoint-every", str(EVERY), "--save", SAVED]

    def _start(self, words):
        return subprocess.Popen(words, cwd=self._place.folder, env=self._place.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def _end(self, process):
        """Waits for the end. Returns (exit code as in a shell; None: a hang, output)."""
        try:
            text = process.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            self._place.kill_all()
            return None, process.communicate()[0]
        code = process.returncode
        return (code if code >= 0 else 128 - code), text

    def _fault_of_what_is_left(self, form):
        """Resumes the job to its end. Returns what is wrong, or None."""
        weir_jobs.until("the end of all processes", lambda: not self._place.processes())
        code, text = self._end(self._start(self._words(form, 1)))
        if code != 0:
            return f"a run that resumes ends with {code}:\n{text}"
        # A run that has nothing left to train writes the weights, too.
        if self._place.bytes_of(SAVED) != self._good:
            return f"a run that resumes has other weights:\n{text}"
        left = [name for folder, folders, names in os.walk(self._place.folder) for name in [*folders, *names]
                if ".partial-" in name]
        return f"unfinished files are left: {left}" if left else None

    def fault_at_call(self, kind):
        """Kills a process at a system call of a save (kind "KILL"), or lets the call fail with an error."""
        form, processes = self._chance.choice(FORMS), self._chance.choice((1, 2))
        call = self._chance.choice(list(CALLS))
        number = self._chance.randint(1, CALLS[call])
        self._prepare(form)
        fault = "signal=KILL" if kind == "KILL" else f"error={kind}"
        on = self._chance.choice(("", "+")) if kind != "KILL" else ""
        words = ["strace", "-f", "-qq", "-o", self._path("calls.txt"), "-e", f"trace={call}", "-e",
                 f"inject={call}:{fault}:when={number}{on}", *self._words(form, processes)]
        code, text = self._end(self._start(words))
        with open(self._path("calls.txt"), encoding="utf-8", errors="replace") as file:
            calls = file.read()
        if "INJECTED" not in calls and "+++ killed by SIGKILL +++" not in calls:
            self.without_fault += 1
            return
        drill = ("SIGKILL at a system call of a save" if kind == "KILL" else "a system call that fails (ENOSPC, EIO)")
        shown = f"{' '.join(words)}: {code}\n{text}"
        if code is None:
            self._count(drill, "a hang", shown)
        elif code in CRASHES or "fault of weir" in text:
            self._count(drill, f"a crash ({code})", shown)
        elif code == 0 and kind != "KILL" and self._place.bytes_of(SAVED) != self._good:
            self._count(drill, "success is claimed, and the weights are others", shown)
        else:
            self._count(drill, self._fault_of_what_is_left(form), shown)

    def damage(self):
        """Damages one file of a checkpoint, and resumes."""
        form, processes = self._chance.choice(FORMS), self._chance.choice((1, 2))
        self._prepare(form)
        root = self._path(form).rstrip("/")
        files = [root] if os.path.isfile(root) else sorted(
            os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
        victim = self._chance.choice(files)
        with open(victim, "rb") as file:
            content = bytearray(file.read())
        place = self._chance.randrange(len(content))
        how = self._chance.choice(("a flipped bit", "cut", "8 random bytes"))
        if how == "a flipped bit":
            content[place] ^= 1 << self._chance.randrange(8)
        elif how == "cut":
            del content[place:]
        else:
            content[place:place + 8] = self._chance.randbytes(len(content[place:place + 8]))
        os.chmod(victim, 0o644)
        with open(victim, "wb") as file:
            file.write(content)
        code, text = self._end(self._start(self._words(form, processes)))
        name = os.path.basename(victim)
        shown = f"{how} at byte {place} of {victim}: {code}\n{text}"
        refused = code not in (0, None, *CRASHES) and (name in text or form.rstrip("/") in text)
        harmless = code == 0 and self._place.bytes_of(SAVED) == self._good
        self._count("a checkpoint with a flipped bit, cut, or with 8 random bytes",
                    None if refused or harmless else "not refused with the name of the file", shown)

    def kill_all(self):
        """Kills all processes at a random moment, resumes, and so on until the job is done."""
        form = self._chance.choice(FORMS)
        self._prepare(form)
        kills, code = 0, None
        while code != 0:
            process = self._start(self._words(form, self._chance.choice((1, 2))))
            if kills < KILLS_MAX:
                time.sleep(self._chance.uniform(0.05, 1.0))
                kills += 1
                self._place.kill_all()
            code, text = self._end(process)
            if kills == KILLS_MAX and code not in (0, 137) or code is None or code in CRASHES:
                break
        fault = self._fault_of_what_is_left(form) if code == 0 else f"a run ends with {code}"
        self._count("SIGKILL of everything, resume, until done", fault, text)

    def send_signal(self):
        """Sends a signal to the starter or to its group."""
        form, processes = self._chance.choice(FORMS), self._chance.choice((1, 2))
        self._prepare(form)
        process = self._start(self._words(form, processes))
        which = self._chance.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        to_group = self._chance.random() < 0.5
        time.sleep(self._chance.uniform(0, 1.2))
        try:
            (os.killpg if to_group else os.kill)(process.pid, which)
        except ProcessLookupError:
            pass
        code, text = self._end(process)
        shown = f"{which.name} to {'the group' if to_group else 'the starter'}: {code}\n{text}"
        early = code == 128 + which and not text  # the program had not begun
        if code not in (0, INTERRUPTED) and not early:
            self._count("a signal to the starter or its group", f"exit code {code}", shown)
        else:
            self._count("a signal to the starter or its group", self._fault_of_what_is_left(form), shown)

    def num_faults(self):
        return sum(bad for _, _, bad in self.results.values())

    def table(self):
        lines = ["| drill | tried | as it should | not |", "|---|---|---|---|"]
        lines += [f"| {drill} | {tried} | {good} | {bad} |" for drill, (tried, good, bad) in self.results.items()]
        return "\n".join(lines)


def run(rounds, seed):
    """Runs all drills so many times. Returns the Drills with the results."""
    drills = Drills(random.Random(seed))
    try:
        for done in range(rounds):
            for kind in ("KILL", "KILL", "ENOSPC", "EIO"):
                drills.fault_at_call(kind)
            drills.damage()
            drills.damage()
            drills.kill_all()
            drills.send_signal()
            print(f"{done + 1} rounds", file=sys.stderr, flush=True)
    finally:
        drills.close()
    return drills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds of all drills [30]")
    parser.add_argument("--seed", type=int, default=weir_jobs.seed(), help="repeats the choices of a run")
    arguments = parser.parse_args()
    if shutil.which("strace") is None:
        print("disk_drills: strace places the faults, and is not installed: apt-get install strace", file=sys.stderr)
        return 69
    print(f"--seed {arguments.seed}", flush=True)
    drills = run(arguments.rounds, arguments.seed)
    print(drills.table())
    print(f"{drills.without_fault} runs made no such call and are not counted")
    return 1 if drills.num_faults() else 0


if __name__ == "__main__":
    sys.exit(main())
