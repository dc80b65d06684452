"""What bench/overlap makes of its measurements: the columns, the targets, the verdicts."""
import os
import platform
import statistics

TARGETS = {"hidden": {"timed": 0.95, "real": 0.90}, "over_bound": 1.05,
           "speedup": {100: 1.15, 150: 1.20}, "slowed": 0.10}


class Line:
    """One setting: communication at `percent` of compute; None: whatever it is."""

    def __init__(self, case, percent, communication, ours, ddp_communication, theirs, ddp_bucket):
        self.case, self.percent, self.ddp_bucket_mib = case, percent, ddp_bucket
        self.communication, self.ddp_communication = communication, ddp_communication
        self.compute, self.train = ours["compute"], ours["train"]
        self.ddp_compute, self.ddp = theirs["compute"], theirs["train"]
        if percent is None:
            self.percent = round(100 * communication["communication_s"] / self.compute_s)

    @property
    def compute_s(self):
        """Of the same processes without communication: forward and backward."""
        return self.compute["forward_s"] + self.compute["backward_s"]

    @property
    def bound_s(self):
        """No schedule can be shorter: what each phase takes alone, the longer one counting. The tail
        is the last bucket's reduction, which nothing can hide; reductions here are the others."""
        alone, wire = self.compute, self.communication
        return (max(alone["forward_s"], wire["gather_s"]) +
                max(alone["backward_s"], wire["reduce_s"] - wire["tail_s"]) +
                self.train["update_s"] + wire["tail_s"])

    @property
    def over_bound(self):
        return self.train["step_s"] / self.bound_s

    @property
    def hidden(self):
        """1 − exposed / wire, over all ranks and steps."""
        return self.train["hidden"]

    @property
    def hidden_by_steps(self):
        """The plain one: what the step is longer than its compute, over communication alone."""
        longer = self.train["step_s"] - self.compute_s - self.train["update_s"]
        return 1 - longer / self.communication["communication_s"]

    @property
    def speedup(self):
        return self.ddp["step_s"] / self.train["step_s"]

    @property
    def slowed(self):
        return (self.train["forward_s"] + self.train["backward_s"]) / self.compute_s - 1

    def cells(self):
        ms = 1e3
        return [self.case, f"{self.percent}", f"{ms * self.compute_s:.0f}",
                f"{ms * self.communication['communication_s']:.0f}",
                f"{ms * self.train['step_s']:.0f}", f"{ms * self.bound_s:.0f}",
                f"{self.over_bound:.3f}", f"{100 * self.hidden:.1f}",
                f"{100 * self.hidden_by_steps:.1f}", f"{100 * self.slowed:+.1f}",
                f"{ms * self.ddp['step_s']:.0f}",
                f"{ms * self.ddp_communication['communication_s']:.0f}", f"{self.speedup:.2f}"]

    def in_words(self):
        return (f"tutti {1e3 * self.train['step_s']:.0f} ms a step ({self.over_bound:.3f} of the "
                f"bound, {100 * self.hidden:.1f} % hidden by the meter and "
                f"{100 * self.hidden_by_steps:.1f} by the step), DDP {1e3 * self.ddp['step_s']:.0f} ms")

    def figures(self):
        return {"case": self.case, "percent": self.percent, "compute_s": self.compute_s,
                "bound_s": self.bound_s, "over_bound": self.over_bound, "hidden": self.hidden,
                "hidden_by_steps": self.hidden_by_steps, "slowed": self.slowed,
                "speedup": self.speedup, "ddp_bucket_mib": self.ddp_bucket_mib,
                "tutti": {"compute": self.compute, "communication": self.communication,
                          "train": self.train},
                "ddp": {"compute": self.ddp_compute, "communication": self.ddp_communication,
                        "train": self.ddp}}


HEADS = [("case", ""), ("comm", "% of comp."), ("compute", "ms"), ("comm", "ms"), ("tutti", "ms"),
         ("bound", "ms"), ("tutti /", "bound"), ("hidden", "%"), ("by step", "%"),
         ("compute", "slowed, %"), ("DDP", "ms"), ("its comm", "ms"), ("DDP /", "tutti")]


def print_table(lines):
    if not lines:
        return
    rows = [[head for head, _ in HEADS], [unit for _, unit in HEADS]]
    rows += [line.cells() for line in lines]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    print()
    for row in rows:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w)
                        for i, (cell, w) in enumerate(zip(row, widths))))
    print()
    for text, reached in verdicts(lines):
        print(f"{'reached' if reached else 'MISSED '}  {text}")


def verdicts(lines):
    """(the target and what was measured, reached) for each target that these lines can tell."""
    found = []
    for case, percent in dict.fromkeys((line.case, line.percent) for line in lines):
        group = [line for line in lines if (line.case, line.percent) == (case, percent)]
        if case != "host":
            found += list(judge(case, percent, group))
    return found


def judge(case, percent, group):
    def median(name):
        return statistics.median(getattr(line, name) for line in group)

    where = f"{case} at {percent} %"
    if percent == 50:
        least = TARGETS["hidden"][case]
        yield (f"{where}: {100 * median('hidden'):.1f} % hidden by the meter "
               f"({100 * median('hidden_by_steps'):.1f} by the step), at least {100 * least:.0f} %",
               median("hidden") >= least)
    yield (f"{where}: step {median('over_bound'):.3f} of the bound, at most "
           f"{TARGETS['over_bound']}", median("over_bound") <= TARGETS["over_bound"])
    if percent in TARGETS["speedup"]:
        least = TARGETS["speedup"][percent]
        yield (f"{where}: {median('speedup'):.2f} times DDP's speed, at least {least}",
               median("speedup") >= least)
    if case == "real":
        yield (f"{where}: compute slowed by {100 * median('slowed'):.1f} %, at most "
               f"{100 * TARGETS['slowed']:.0f} %", median("slowed") <= TARGETS["slowed"])


def describe_machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    return {"processor": model, "cores": os.cpu_count(), "kernel": platform.release(),
            "load": os.getloadavg()[0]}
