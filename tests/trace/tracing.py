"""What the tests of `tutti trace` share: jobs that leave traces, and a strict reader of merged ones."""
import gzip
import json
import os
import re
import subprocess
import tempfile
import unittest

TOOL = os.environ["TUTTI_TOOL"]
RANK = os.path.join(os.environ["TUTTI_TEST_PROGRAMS"], "traced_rank")
LIMIT = 120  # seconds; only against hangs


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.traces = os.path.join(self.folder, "traces")

    def run_words(self, *words, **environment):
        return subprocess.run(list(words), capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, **environment})

    def job(self, manner, ranks=4, code=0, **environment):
        """A job of traced_rank whose traces lie in self.traces."""
        done = self.run_words(TOOL, "run", "-n", str(ranks), RANK, manner,
                              TUTTI_TRACE_DIR=self.traces, **environment)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        return done

    def trace(self, *words):
        return self.run_words(TOOL, "trace", *words)

    def refused(self, words, *needles, code=2):
        """It ends with `code` and one line that says all of this."""
        done = self.trace(*words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for needle in needles:
            self.assertIn(needle, done.stderr)

    def files(self):
        return sorted(name for name in os.listdir(self.traces) if name.endswith(".trace"))

    def merge(self):
        output = os.path.join(self.folder, "run.json.gz")
        done = self.trace("merge", self.traces, "-o", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        with gzip.open(output, "rt", encoding="utf-8") as file:
            return Merged(json.load(file))


class Merged:
    """A merged trace, checked by the rules that Perfetto has."""

    def __init__(self, document):
        self.about = document["otherData"]
        self.events = document["traceEvents"]
        self.slices = [event for event in self.events if event["ph"] == "X"]
        self.names = {(event["pid"], event["tid"]): event["args"]["name"]
                      for event in self.events if event["name"] == "thread_name"}
        self.processes = {event["pid"]: event["args"]["name"]
                          for event in self.events if event["name"] == "process_name"}
        self.rows = {}
        for each in self.slices:
            self.rows.setdefault((each["pid"], each["tid"]), []).append(each)

    def lane(self, rank, name):
        return [each for key, row in self.rows.items() for each in row
                if key[0] == rank and self.names[key] == name]

    def complaints(self):
        """Everything that a viewer would drop or draw wrongly."""
        found = []
        for key, row in self.rows.items():
            if key not in self.names:
                found.append(f"row {key} has no name")
            found += [f"row {key} ({self.names.get(key)}): {text}" for text in crossing(row)]
        for pid in {key[0] for key in self.rows}:
            if pid not in self.processes:
                found.append(f"process {pid} has no name")
        return found + self.flow_complaints()

    def flow_complaints(self):
        found, flows = [], {}
        for event in self.events:
            if event["ph"] in "stf":
                flows.setdefault(event["id"], []).append(event)
        for number, events in flows.items():
            phases = "".join(event["ph"] for event in events)
            if not re.fullmatch("st*f", phases):
                found.append(f"flow {number} goes {phases}")
            if sorted(event["ts"] for event in events) != [event["ts"] for event in events]:
                found.append(f"flow {number} goes back in time")
            for event in events:
                row = self.rows.get((event["pid"], event["tid"]), [])
                if not any(nanos(s["ts"]) <= nanos(event["ts"]) <= nanos(s["ts"]) + nanos(s["dur"])
                           for s in row):
                    found.append(f"flow {number} touches no slice at {event['ts']}")
        return found


def nanos(micros):
    return round(micros * 1000)


def crossing(row):
    """Slices of a row that overlap without one lying in the other."""
    open_ends = []
    for each in sorted(row, key=lambda s: (nanos(s["ts"]), -nanos(s["dur"]))):
        begin, end = nanos(each["ts"]), nanos(each["ts"]) + nanos(each["dur"])
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            yield f"{each['name']} at {each['ts']} crosses the one before"
        open_ends.append(end)
