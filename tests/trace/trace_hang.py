#!/usr/bin/env python3
"""`tutti trace hang` after real failures: the paragraph names the culprit, from what to what."""
import json
import os
import unittest

from tracing import TraceTest


class HangTest(TraceTest):
    def verdict(self, folder=None):
        done = self.trace("hang", folder or self.traces, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        text = self.trace("hang", folder or self.traces)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertEqual(text.stdout.strip(), found["text"])
        self.assertEqual(text.stdout.count("\n"), 1, "one paragraph")
        return found

    def test_a_rank_that_called_something_else_is_named_with_both_calls(self):
        self.job("mismatch", code=1)
        found = self.verdict()
        self.assertEqual(found["verdict"], "mismatch")
        self.assertIn(2, found["diverged"])
        self.assertEqual({found["from"], found["to"]}, {"all_reduce", "broadcast"})
        number = found["sequence"]
        self.assertIn(f"called broadcast #{number} (64 B of f32)", found["text"])
        self.assertIn(f"called all_reduce #{number} (256 KiB of f32, max)", found["text"])
        # Two ranks suffice to find out: then nobody can say which of them is right.
        if len(found["diverged"]) > 1:
            self.assertIn("parted", found["text"])
        else:
            self.assertIn("Rank 2 diverged first: it called broadcast", found["text"])
        self.assertIn(f"Up to #{number - 1}, all_reduce 'big one'", found["text"])

    def test_a_killed_rank_is_named_with_what_it_had_done_last(self):
        self.job("killed", code=None)
        found = self.verdict()
        self.assertEqual(found["verdict"], "absent")
        self.assertEqual(found["diverged"], [1])
        # Whether the others had begun the next operation by then is a race; what the dead rank had
        # done last is in its trace, which outlived it.
        self.assertRegex(found["text"], r"Rank 1 never reached all_reduce #\d+ \(256 KiB|"
                                        r"Rank 1 left no dump while ranks 0, 2 and 3 did")
        self.assertRegex(found["text"], r"last (there )?was all_reduce #\d+.*finished")
        self.assertIn("killed or crashed", found["text"])

    def test_dumps_alone_suffice(self):
        folder = os.path.join(self.folder, "dumps")
        os.mkdir(folder)
        done = self.run_words(os.environ["TUTTI_TOOL"], "run", "-n", "4",
                              os.path.join(os.environ["TUTTI_TEST_PROGRAMS"], "traced_rank"),
                              "killed", TUTTI_DUMP_DIR=folder)
        self.assertNotEqual(done.returncode, 0)
        found = self.verdict(folder)
        self.assertEqual((found["verdict"], found["diverged"]), ("absent", [1]))
        self.assertRegex(found["text"], "neither dump nor trace|Rank 1 left no dump")

    def test_a_rank_that_is_alive_but_never_came_is_told_from_a_dead_one(self):
        self.job("stuck", code=None)
        found = self.verdict()
        self.assertEqual((found["verdict"], found["diverged"]), ("absent", [1]))
        self.assertIn("It was alive", found["text"])
        self.assertNotIn("killed", found["text"])

    def test_a_job_that_went_well_has_no_culprit(self):
        self.job("well")
        found = self.verdict()
        self.assertEqual(found["verdict"], "none")
        self.assertIn("No rank diverged", found["text"])

    def test_what_is_wrong_with_the_input_is_said_in_one_line(self):
        self.refused(["hang", self.traces], self.traces)
        os.mkdir(self.traces)
        self.refused(["hang", self.traces], "neither dumps")
        path = os.path.join(self.traces, "tutti.rank0.pid7.json")
        with open(path, "w") as file:
            file.write('{"tutti_recorder":1,"rank":0,"records":[{"time')
        self.refused(["hang", self.traces], path, "not whole", code=1)
        with open(path, "w") as file:
            file.write('{"tutti_recorder":9}')
        self.refused(["hang", self.traces], path, "version 9")
        with open(path, "w") as file:
            file.write('{"some":"thing"}')
        self.refused(["hang", self.traces], path, "no dump", code=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
