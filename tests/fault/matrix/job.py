"""One job of `tutti run` under observation: what its ranks and launchers said, when, and what is left of it."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

BUILD = Path(os.environ.get("TUTTI_BUILD", Path(__file__).resolve().parents[3] / "build"))
TOOL = Path(os.environ.get("TUTTI_TOOL", BUILD / "bin/tutti"))
PROGRAMS = Path(os.environ.get("TUTTI_TEST_PROGRAMS", BUILD / "tests/programs"))
LIMIT_S = 60  # only against hangs: nothing here may take that long
PATIENCE_S = 1.0  # for processes that are on their way out when the launcher has ended


def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it ended meanwhile
        return []


def processes_with(mark):
    """Processes that inherited the variable MARK=mark, also those that left their session or parent."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        if f"MARK={mark}" not in environment_of(entry):
            continue
        try:
            found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            pass
    return found


class Job:
    """`launchers`: for each node a prefix of words that enters its host and a list of flags."""

    def __init__(self, program, ranks=4, environment=None, flags=(), launchers=((), ), tool_prefix=()):
        self.folder = Path(tempfile.mkdtemp(prefix="matrix-"))
        self.mark = uuid.uuid4().hex
        self.ranks = ranks
        self.lines, self.errors, self.faults = [], [], []
        self.heard = threading.Condition()
        for name in ("tmp", "runtime", "cache", "work"):
            (self.folder / name).mkdir(mode=0o700)
        self.environment = {**{name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")},
                            "MARK": self.mark, "FAULT_NOTE": str(self.folder / "fault"),
                            "TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
                            "XDG_CACHE_HOME": str(self.folder / "cache"), "TUTTI_TUNING": "fixed",
                            **(environment or {})}
        self.shm_before = set(os.listdir("/dev/shm"))
        self.words = [str(word).replace("{folder}", str(self.folder)) for word in program]
        self.launchers, self.readers = [], []
        for node, prefix in enumerate(launchers):
            self.launch(node, len(launchers), list(prefix), list(flags), list(tool_prefix))
        self.started = time.monotonic()

    def launch(self, node, nodes, prefix, flags, tool_prefix):
        count = self.ranks // nodes
        words = [*prefix, *tool_prefix, TOOL, "run", "-n", count, "--json", self.folder / f"report{node}.json",
                 *(str(flag).replace("{node}", str(node)).replace("{folder}", str(self.folder)) for flag in flags)]
        process = subprocess.Popen([str(word) for word in words] + self.words, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment, cwd=self.folder / "work", start_new_session=True)
        self.launchers.append(process)
        for stream, heard in ((process.stdout, self.hear), (process.stderr, self.errors.append)):
            reader = threading.Thread(target=self.read, args=(stream, heard), daemon=True)
            reader.start()
            self.readers.append(reader)

    def read(self, stream, heard):
        for line in stream:
            heard(line.rstrip("\n"))

    def hear(self, text):
        try:
            line = json.loads(text)
        except ValueError:
            line = {"text": text}
        with self.heard:
            self.lines.append(line)
            self.heard.notify_all()

    def wait_for(self, fact, seconds=LIMIT_S):
        with self.heard:
            return self.heard.wait_for(fact, seconds)

    def wait_ready(self):
        """Until every rank has run each collective once."""
        return self.wait_for(lambda: len([line for line in self.lines if line.get("ready")]) == self.ranks)

    def pids(self):
        return {line["rank"]: line["pid"] for line in self.lines if line.get("ready")}

    def rank_pids(self):
        """Of ranks that live now, by rank, also where they have said nothing yet."""
        found = {}
        for pid, words in processes_with(self.mark).items():
            if words.split(" ")[0] != self.words[0]:
                continue
            for entry in environment_of(pid):
                if entry.startswith("TUTTI_RANK="):
                    found[int(entry[11:])] = pid
        return found

    def strike(self, where):
        """Notes that something is done from outside, now."""
        self.faults.append({"fault": time.monotonic(), "where": where})

    def wait(self, seconds=LIMIT_S):
        """Until all launchers have ended; False if some had to be killed."""
        end = time.monotonic() + seconds
        in_time = True
        for process in self.launchers:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                in_time = False
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.ended = time.monotonic()
        self.left = self.left_behind()
        for pid in processes_with(self.mark):
            os.kill(pid, signal.SIGKILL)
        for reader in self.readers:
            reader.join(1)
        note = self.folder / "fault"
        if note.exists():
            self.faults += [json.loads(line) for line in note.read_text().splitlines()]
        return in_time

    def left_behind(self):
        end = time.monotonic() + PATIENCE_S
        while processes_with(self.mark) and time.monotonic() < end:
            time.sleep(0.02)
        left = [f"process {pid}: {words}" for pid, words in processes_with(self.mark).items()]
        # Other work on this machine has files there too: ours carry a pid of ours or our user's name for the job.
        left += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - self.shm_before if "tutti" in name]
        for name in ("tmp", "runtime", "cache"):
            left += [str(path) for path in (self.folder / name).rglob("*") if not path.is_dir()]
        return left

    def last_words(self):
        """By rank: the line in which it says how it ended."""
        return {line["rank"]: line for line in self.lines if "stage" in line}

    def wrong(self):
        return [line["wrong"] for line in self.lines if "wrong" in line]

    def report(self, node=0):
        try:
            return json.loads((self.folder / f"report{node}.json").read_text())
        except (OSError, ValueError):
            return {}

    def stderr(self):
        return "\n".join(self.errors)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)
