#!/usr/bin/env python3
"""`tutti trace report` of real runs: its figures agree with the trainer's own, and causes are found."""
import json
import os
import struct
import unittest

from tracing import TOOL, TraceTest

TRAINER = os.environ.get("PRETRAIN_GPT", "")
MODEL = ("--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 32 "
         "--micro-batch-size 2 --train-iters 6 --bucket-size 100000 --use-distributed-optimizer "
         "--overlap-grad-reduce --overlap-param-gather --async-log-allreduce").split()


class ReportTest(TraceTest):
    def report(self, *words):
        done = self.trace("report", self.traces, "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_a_late_rank_is_found_to_be_the_straggler(self):
        self.job("late")
        report = self.report()
        self.assertEqual(report["causes"], ["straggler", "queued behind", "slow link", "late ready"])
        straggler = [f["text"] for f in report["findings"] if "holds the others up" in f["text"]]
        self.assertEqual(len(straggler), 1, report["findings"])
        self.assertTrue(straggler[0].startswith("Rank 1 holds the others up"), straggler[0])
        # Most of a step passes in waiting: that is no good news.
        self.assertEqual(report["findings"][0]["level"], "warn")
        big = next(each for each in report["buckets"] if each["name"] == "all_reduce big one")
        self.assertGreater(big["causes_us"][0], 5000)
        self.assertEqual(big["straggler"], 1)
        self.assertLess(big["exposed_us"], big["causes_us"][0])

    def test_causes_add_up_to_the_waiting_of_every_step(self):
        self.job("late")
        report = self.report()
        self.assertEqual([step["step"] for step in report["steps"]], [1, 2, 3, 4, 5])
        for step in report["steps"]:
            self.assertEqual(len(step["ranks"]), 4)
            for rank in step["ranks"]:
                self.assertAlmostEqual(sum(rank["causes_us"]), rank["wait_us"], delta=0.01)
                self.assertLessEqual(rank["overlapped_us"], rank["communication_us"] + 0.01)
                self.assertLessEqual(rank["compute_us"] + rank["wait_us"], rank["step_us"] + 0.01)

    def test_words_are_printed_without_any_flag(self):
        self.job("well", ranks=2)
        done = self.trace("report", self.traces)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("* A step takes", done.stdout)
        self.assertIn("all_reduce", done.stdout)

    def test_what_is_wrong_with_the_input_is_said_in_one_line(self):
        os.mkdir(self.traces)
        self.refused(["report", self.traces], "is empty")
        self.job("well", ranks=2)
        self.refused(["report", self.traces, "--html", "/proc/nowhere/r.html"], "/proc/nowhere/r.html")


@unittest.skipUnless(TRAINER, "there is no pretrain_gpt")
class TrainerTest(TraceTest):
    def train(self, ranks, *words):
        log = os.path.join(self.folder, "log.jsonl")
        done = self.run_words(TOOL, "run", "-n", str(ranks), TRAINER, *MODEL, "--data-path",
                              "/usr/share/common-licenses/GPL-3", "--trace", self.traces,
                              "--log-json", log, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if "event" not in line]

    def test_the_report_agrees_with_the_trainers_own_figures(self):
        events = os.path.join(self.folder, "events")
        steps = self.train(2, "--tensorboard-dir", events)
        done = self.trace("report", self.traces, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(len(report["steps"]), 6)
        for line, step in zip(steps, report["steps"]):
            self.assertEqual(line["step"], step["step"])
            longest = max(rank["step_us"] for rank in step["ranks"])
            self.assertAlmostEqual(longest, line["max"]["step_s"] * 1e6, delta=1)
            if line["step"] == 1:
                continue  # it also moves the buckets, which the trainer does not count as waiting
            # The trainer's wait is measured around Work::wait, ours within it.
            wait = sum(rank["wait_us"] for rank in step["ranks"]) / 2
            self.assertAlmostEqual(wait, line["mean"]["wait_s"] * 1e6, delta=0.05 * wait + 300)
        curves = {curve["name"]: curve["points"] for curve in report["curves"]}
        self.assertEqual(curves["loss"], [[line["step"], line["loss"]] for line in steps])
        self.assertEqual([step for step, _ in curves["tokens/s"]], [1, 2, 3, 4, 5, 6])
        names = {each["name"] for each in report["buckets"]}
        self.assertTrue(any(name.startswith("reduce_scatter bucket ") for name in names), names)
        self.assertIn("all_reduce control", names)
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        self.assertEqual({each["name"] for each in merged.lane(1, "compute")},
                         {"forward", "backward", "update"})
        self.check_events(events, steps)

    def check_events(self, folder, steps):
        """TensorBoard's files, read by hand: every crc, every scalar."""
        (name,) = os.listdir(folder)
        self.assertIn("tfevents", name)
        with open(os.path.join(folder, name), "rb") as file:
            events = [decode_event(payload) for payload in records(file.read())]
        self.assertEqual(events[0]["version"], b"brain.Event:2")
        got = {event["step"]: event["scalars"] for event in events[1:]}
        self.assertEqual(sorted(got), [1, 2, 3, 4, 5, 6])
        for line in steps:
            scalars = got[line["step"]]
            self.assertAlmostEqual(scalars["loss/train"], line["loss"], delta=1e-5)
            self.assertAlmostEqual(scalars["time/exposed_s"], line["max"]["exposed_s"], delta=1e-6)
            self.assertEqual(set(scalars), {"loss/train", "batch/sequences", "optimizer/learning_rate",
                                            "optimizer/weight_decay", "optimizer/grad_norm",
                                            "time/step_s", "time/exposed_s", "time/hidden_share",
                                            "throughput/tokens_per_s", "throughput/mfu"})


def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked(data[at:at + 8]), "crc of a length"
        payload = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked(payload), "crc of a payload"
        yield payload
        at += 16 + length


def fields(data):
    """(field, value) of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at:at + length]
        at += length


def decode_event(payload):
    event = {"step": 0, "scalars": {}}
    for field, value in fields(payload):
        if field == 2:
            event["step"] = value
        if field == 3:
            event["version"] = value
        if field == 5:
            for _, scalar in fields(value):
                parts = dict(fields(scalar))
                event["scalars"][parts[1].decode()] = struct.unpack("<f", parts[2])[0]
    return event


if __name__ == "__main__":
    unittest.main(verbosity=2)
