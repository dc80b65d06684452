"""What is looked at when a job has ended."""
import functools
import subprocess

from job import Job, PROGRAMS, TOOL

STEPS = 40


def hashes_of(job):
    """Of the weights, as ranks that ended well say them."""
    return {line["more"]["hash"] for line in job.last_words().values() if line["code"] == "ok"}


def train(folder, steps=STEPS):
    """Trains to the end on 4 ranks, from what is in `folder`; the weights' hash, or a sentence on what went wrong."""
    job = Job([PROGRAMS / "train_rank", f"folder={folder}", f"steps={steps}"])
    try:
        job.wait()
        hashes = hashes_of(job)
        return hashes.pop() if len(hashes) == 1 else f"no hash: {job.lines} {job.stderr()}"
    finally:
        job.close()


@functools.lru_cache
def calm_hash(place):
    """Of a run that nobody disturbs."""
    return train(f"{place}/calm")


def goes_on(job, stage):
    """The job's checkpoints lead to the same weights as no interruption at all."""
    folder = stage.place / "saved"
    if stage.disk:  # there is room again
        subprocess.run(["mount", "-o", "remount,size=4M", stage.disk], check=True)
        folder = stage.disk / "saved"
    got, calm = train(folder), calm_hash(str(stage.place))
    problems = [] if got == calm else [f"resumed, its weights are {got}, not {calm}"]
    return problems + left_in(folder)


def left_in(folder):
    """Temporary names of a save that was cut short are taken away by the next."""
    names = {path.name for path in folder.iterdir()}
    return [f"left in the checkpoint folder: {name}" for name in names
            if name != "latest" and not name.startswith("iter_")]


def same_weights(job, stage):
    """A job that recovered by itself has the weights of one that was never disturbed."""
    hashes = hashes_of(job)
    calm = calm_hash(str(stage.place))
    return [] if hashes == {calm} else [f"its weights are {hashes}, not {calm}"]


def trace_is_readable(job, stage):
    done = subprocess.run([TOOL, "trace", "report", stage.place / "trace"], capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"tutti trace report: {done.stderr}"]
