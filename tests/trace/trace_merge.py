#!/usr/bin/env python3
"""Traces of real jobs, merged: lanes, nesting, flows, Kineto's keys; and traces that are not whole."""
import os
import shutil
import unittest

from tracing import Merged, RANK, TOOL, TraceTest, crossing


class MergeTest(TraceTest):
    def test_a_job_of_four_ranks_becomes_one_trace_that_viewers_accept(self):
        self.job("well")
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        self.assertEqual(sorted(merged.processes), [0, 1, 2, 3])
        for rank in range(4):
            self.assertEqual({each["name"] for each in merged.lane(rank, "compute")},
                             {"outer", "inner"})
            steps = [each["args"]["step"] for each in merged.lane(rank, "steps")]
            self.assertEqual(steps, [1, 2, 3, 4, 5])
        flows = [event for event in merged.events if event["ph"] == "s"]
        named = [each for each in merged.lane(0, "world") if each["args"]["Call"] == "big one"]
        self.assertEqual(len(named), 5)
        self.assertGreaterEqual(len(flows), 5 + 2 * 5)  # world, and a pair on each side
        losses = [event["args"]["loss"] for event in merged.events
                  if event["ph"] == "C" and event["pid"] == 0]
        self.assertEqual(losses, [10.0 / step for step in range(1, 6)])

    def test_collectives_have_the_keys_that_tools_look_for(self):
        self.job("well")
        merged = self.merge()
        big = [each for each in merged.lane(2, "world") if each["args"]["Call"] == "big one"][0]
        arguments = big["args"]
        self.assertEqual(arguments["Collective name"], "all_reduce")
        self.assertEqual(arguments["dtype"], "f32")
        self.assertEqual(arguments["In msg nelems"], 65536)
        self.assertEqual(arguments["Out msg nelems"], 65536)
        self.assertEqual(arguments["Group size"], 4)
        self.assertEqual(arguments["Process Group Name"], "world")
        self.assertEqual(arguments["Process Group Ranks"], "[0-3]")
        self.assertEqual(arguments["Bytes"], 4 * 65536)
        self.assertEqual(arguments["Reduction"], "max")
        self.assertGreater(arguments["Predicted us"], 0)
        pair = merged.lane(3, "pair")
        self.assertEqual({each["args"]["Process Group Ranks"] for each in pair}, {"[2-3]"})

    def test_reductions_and_waits_have_lanes_of_their_own(self):
        self.job("late")
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        folds = [each for rank in range(4) for each in merged.lane(rank, "reduce world")]
        self.assertTrue(folds)
        self.assertTrue(all(each["args"]["Bytes"] >= 16384 for each in folds))
        waits = [each for each in merged.lane(0, "wait") if "big one" in each["name"]]
        self.assertGreater(sum(each["dur"] for each in waits), 5 * 50_000)  # µs; rank 1 is 100 ms late

    def test_ranks_that_are_threads_of_one_process_have_a_file_each(self):
        done = self.run_words(RANK, "threads", TUTTI_TRACE_DIR=self.traces)
        self.assertEqual(done.returncode, 0, done.stderr)
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        for rank in range(3):
            self.assertEqual([each["args"]["step"] for each in merged.lane(rank, "steps")],
                             [1, 2, 3, 4, 5])
            named = [each for each in merged.lane(rank, "world") if each["args"]["Call"] == "big one"]
            self.assertEqual(len(named), 5)

    def test_messages_over_sockets_are_traced_as_well(self):
        self.job("well", TUTTI_TRANSPORT="tcp")
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        named = [each for each in merged.lane(3, "world") if each["args"]["Call"] == "big one"]
        self.assertEqual(len(named), 5)
        folds = merged.lane(0, "reduce world")
        self.assertTrue(folds)
        within = [fold for fold in folds if any(
            op["ts"] <= fold["ts"] and fold["ts"] + fold["dur"] <= op["ts"] + op["dur"]
            and op["args"]["Sequence"] == fold["args"]["Sequence"] for op in merged.lane(0, "world"))]
        self.assertEqual(len(within), len(folds), "every fold lies in its collective")

    def test_ranks_with_other_clocks_are_put_on_one_line(self):
        # A time namespace stands for another host: rank 1's steady clock is 5000 s ahead.
        probe = self.run_words("unshare", "-T", "--monotonic", "5000", "--fork", "true")
        if probe.returncode != 0:
            self.skipTest("this machine has no time namespaces for us")
        away = 'if [ "$RANK" = 1 ]; then exec unshare -T --monotonic 5000 --fork "$@"; fi; exec "$@"'
        done = self.run_words(TOOL, "run", "-n", "2", "bash", "-c", away, "rank", RANK, "late",
                              TUTTI_TRACE_DIR=self.traces)
        self.assertEqual(done.returncode, 0, done.stderr)
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        first, second = merged.about["clocks"]
        self.assertEqual(first["offset_ns"], 0)
        self.assertGreater(second["uncertainty_ns"], 0)
        wrong_by = abs(second["offset_ns"] + 5000 * 10**9)
        # Times of short calls come from the processor's ticks, which drift against the clock by
        # microseconds; what is looked for here is off by hours.
        self.assertLessEqual(wrong_by, second["uncertainty_ns"] + 100_000)
        self.assertLess(wrong_by, 10**8)

    def test_a_killed_ranks_trace_is_read_as_far_as_it_goes(self):
        self.job("killed", code=None)
        output = os.path.join(self.folder, "run.json.gz")
        done = self.trace("merge", self.traces, "-o", output)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 1 ends early", done.stderr)
        merged = self.merge()
        self.assertEqual(merged.complaints(), [])
        self.assertEqual([each["args"]["step"] for each in merged.lane(1, "steps")],
                         [1, 2, 3, 4, 5])

    def test_a_trace_that_was_cut_between_two_events_says_so(self):
        self.job("well")
        path = os.path.join(self.traces, self.files()[0])
        size = os.path.getsize(path)
        os.truncate(path, size - 64 * 3 - 20)
        done = self.trace("merge", self.traces, "-o", os.path.join(self.folder, "run.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 0 ends early", done.stderr)

    def test_what_is_wrong_with_the_input_is_said_in_one_line(self):
        output = os.path.join(self.folder, "run.json.gz")
        nowhere = os.path.join(self.folder, "nowhere")
        self.refused(["merge", nowhere, "-o", output], nowhere)
        os.mkdir(self.traces)
        self.refused(["merge", self.traces, "-o", output], "is empty")
        foreign = os.path.join(self.traces, "notes.txt")
        open(foreign, "w").close()
        self.refused(["merge", self.traces, "-o", output], "notes.txt")
        os.rename(foreign, os.path.join(self.traces, "rank-0.x.trace"))
        self.refused(["merge", self.traces, "-o", output], "rank-0.x.trace", "empty", code=1)
        with open(os.path.join(self.traces, "rank-0.x.trace"), "w") as file:
            file.write("this is a letter to somebody\n" * 100)
        self.refused(["merge", self.traces, "-o", output], "rank-0.x.trace", "no trace")
        shutil.rmtree(self.traces)
        self.job("well")
        self.refused(["merge", self.traces, "-o", os.path.join(nowhere, "x")], nowhere)
        self.assertFalse(os.path.exists(output))

    def test_a_damaged_file_is_named_with_the_place(self):
        self.job("well")
        path = os.path.join(self.traces, self.files()[2])
        with open(path, "r+b") as file:
            file.seek(512 + 64 * 40 + 33)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 4]))
        self.refused(["merge", self.traces, "-o", os.path.join(self.folder, "r.json")],
                     self.files()[2], f"byte {512 + 64 * 40}", code=1)

    def test_two_jobs_in_a_folder_are_told_apart(self):
        self.job("well")
        first = self.files()[0].split(".")[1]
        self.job("well", ranks=2)
        output = os.path.join(self.folder, "run.json.gz")
        self.refused(["merge", self.traces, "-o", output], "2 jobs", "--job", first)
        done = self.trace("merge", self.traces, "-o", output, "--job", first)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refused(["merge", self.traces, "-o", output, "--job", "other"], "other", first)

    def test_a_missing_rank_is_named(self):
        self.job("well")
        os.remove(os.path.join(self.traces, self.files()[3]))
        done = self.trace("merge", self.traces, "-o", os.path.join(self.folder, "r.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 3 of 4 left no trace", done.stderr)

    def test_a_folder_that_cannot_be_written_fails_the_job_with_its_name(self):
        with open(os.path.join(self.folder, "file"), "w"):
            pass
        self.traces = os.path.join(self.folder, "file", "traces")
        done = self.job("well", ranks=2, code=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(self.traces, done.stderr)

    def test_the_check_itself_finds_slices_that_cross(self):
        row = [{"ts": 1.0, "dur": 2.0, "name": "a"}, {"ts": 2.0, "dur": 2.0, "name": "b"}]
        self.assertEqual(len(list(crossing(row))), 1)
        events = [{"ph": "s", "id": 1, "pid": 0, "tid": 1, "ts": 1.0, "name": "x"}]
        self.assertEqual(len(Merged({"otherData": {}, "traceEvents": events}).complaints()), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
