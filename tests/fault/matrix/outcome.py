"""What a row expects, and whether a job did it."""
import dataclasses
import statistics
from typing import Optional, Tuple


@dataclasses.dataclass(frozen=True)
class Expect:
    """After the fault every rank that still speaks must say `code`, blaming `culprit`; `tutti run` must name it too."""
    code: str = "ok"
    culprit: Optional[int] = None
    parted: bool = False                # ranks of one host blame the same rank, of the other host
    also: Tuple[str, ...] = ()          # codes that are as good
    first_failure: Optional[int] = None  # the rank that `tutti run` names; absent: the culprit, -1: any
    exit_code: Optional[int] = 0
    says: Tuple[str, ...] = ()          # words in what ranks and launchers print
    silent: Tuple[int, ...] = ()        # ranks that cannot speak any more
    late: Tuple[int, ...] = ()          # ranks that are not asked when they heard of it
    stage: Optional[str] = None         # init, run, end
    launchers_s: float = 5.0            # they end so long after the bound: graces for ranks that do not end by themselves
    anyone_silent: bool = False         # the launcher itself was killed: nobody need speak

    def describe(self):
        words = "exact results" if self.code == "ok" else self.code
        if self.culprit is not None:
            words += f" naming rank {self.culprit}"
        if self.parted:
            words += " naming one rank of the other host"
        if self.anyone_silent:
            words = "all ranks end"
        if self.exit_code is not None:
            words += f", exit {self.exit_code}"
        if self.says:
            words += ", says " + ", ".join(f"“{word}”" for word in self.says)
        return words


@dataclasses.dataclass
class Seen:
    """One run of a row."""
    problems: list
    seconds: Optional[float]  # from the fault to the last verdict, or the run's length
    left: list
    detail: str = ""

    @property
    def ok(self):
        return not self.problems and not self.left


def time_to_verdict(job, expect):
    faults = [fault["fault"] for fault in job.faults]
    if not faults:
        return job.ended - job.started
    if expect.anyone_silent or expect.code == "ok":
        return job.ended - faults[0]
    return max((line["at"] - faults[0] for rank, line in job.last_words().items() if rank not in expect.late),
               default=None)


def judge_ranks(job, expect):
    words = job.last_words()
    if expect.anyone_silent:
        return
    for rank in sorted(set(range(job.ranks)) - set(expect.silent)):
        line = words.get(rank)
        if line is None:
            yield f"rank {rank} said nothing"
            continue
        if line["code"] not in (expect.code, *expect.also):
            yield f"rank {rank} got {line['code']} in {line['operation']}: {line['message']}"
        elif expect.culprit is not None and line["peer"] != expect.culprit:
            yield f"rank {rank} blames rank {line['peer']}: {line['message']}"
        elif expect.stage is not None and line["stage"] != expect.stage:
            yield f"rank {rank} got it in {line['stage']}"
    for side in (range(job.ranks // 2), range(job.ranks // 2, job.ranks)):
        blamed = {words[rank]["peer"] for rank in set(side) & set(words) - set(expect.silent)}
        if expect.parted and (len(blamed) > 1 or blamed & set(side)):
            yield f"ranks {side[0]} to {side[-1]} blame {sorted(blamed)}"
    numbers = {line["sequence"] for rank, line in words.items() if line["code"] == expect.code != "ok"}
    # A rank that had ended the operation before it heard names the next one; one that was in none names none.
    numbers.discard(0)
    if numbers and max(numbers) - min(numbers) > 1:
        yield f"ranks name different operations: {sorted(numbers)}"


def judge_launcher(job, expect):
    said = job.stderr() + "".join(line.get("message", "") + line.get("text", "") for line in job.lines)
    for word in expect.says:
        if word not in said:
            yield f"nobody says “{word}”: {said[-600:]}"
    if expect.exit_code is None:
        return
    codes = {process.returncode for process in job.launchers}
    if codes != {expect.exit_code}:
        yield f"tutti run ended with {sorted(codes)}, not {expect.exit_code}: {job.stderr()[-600:]}"
        return
    culprit = expect.first_failure if expect.first_failure is not None else expect.culprit
    named = {(job.report(node).get("first_failure") or {}).get("rank") for node in range(len(job.launchers))}
    if expect.exit_code != 0 and culprit is not None and culprit >= 0 and culprit not in named:
        yield f"tutti run names rank {named}: {job.stderr()[-600:]}"


def judge(job, expect, in_time, bound):
    problems = [f"wrong data: {text}" for text in job.wrong()]
    if not in_time:
        problems.append("it hung and was killed")
    problems += [*judge_ranks(job, expect), *judge_launcher(job, expect)]
    seconds = time_to_verdict(job, expect)
    if seconds is not None and seconds > bound:
        problems.append(f"took {seconds:.2f} s, bound {bound:g} s")
    if job.faults and job.ended - job.faults[0]["fault"] > bound + expect.launchers_s:
        problems.append(f"launchers ended {job.ended - job.faults[0]['fault']:.1f} s after the fault")
    where = ", ".join(fault["where"] for fault in job.faults)
    return Seen(problems, seconds, job.left, where)


def summary(seen):
    """worst, median of the times."""
    times = [one.seconds for one in seen if one.seconds is not None]
    return (max(times), statistics.median(times)) if times else (None, None)
