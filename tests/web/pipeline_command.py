#!/usr/bin/env python3
"""`tutti show pipeline` on the command line: picture, table, JSON, drawing, page, and what must be refused."""
import json
import os
import re
import unittest
import xml.etree.ElementTree as xml

from launching import LaunchTest

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ["gpipe", "1f1b", "interleaved", "zb-h1"]


class PipelineTest(LaunchTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def shown(self, *words, **environment):
        answer = self.tutti("show", "pipeline", *words, **environment)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def exported(self, *words):
        return json.loads(self.shown(*words, "--json"))

    def refused(self, words, complaint):
        answer = self.tutti("show", "pipeline", *words)
        self.assertEqual((answer.returncode, answer.stdout), (2, ""), answer)
        self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        self.assertIn(complaint, answer.stderr)

    def test_the_picture_is_the_classic_one(self):
        text = self.shown("--schedule", "1f1b", "--stages", "2", "--micro-batches", "3")
        self.assertIn("stage 0  0>1>····0<<<2>1<<<··2<<<\n"
                      "stage 1  ··0>0<<<1>1<<<2>2<<<····\n", text)
        self.assertIn("step 12 ms = compute 9 ms + bubble 3 ms: 25.0 % of the step, 33.3 % of compute\n", text)
        self.assertIn("closed form, if messages took no time: bubble 3 ms\n", text)
        split = self.shown("--schedule", "zb-h1", "--stages", "2", "--micro-batches", "3")
        self.assertIn("stage 0  0>1>··0b0w2>1b1w2b2w\nstage 1  ··0>0b1>1b0w2>2b1w2w\n", split)

    def test_the_picture_fits_the_window_and_loses_nothing(self):
        words = ["--schedule", "interleaved", "--micro-batches", "12", "--virtual", "3"]
        rows = {}
        for line in self.shown(*words, COLUMNS="60").splitlines():
            if match := re.match(r"stage (\d)  (.*)", line):
                self.assertLessEqual(len(line), 60)
                rows[match[1]] = rows.get(match[1], "") + match[2]
        wide = dict(re.findall(r"^stage (\d)  (.*)$", self.shown(*words, "--wide"), re.M))
        self.assertEqual(rows, wide)

    def test_all_schedules_stand_in_one_table_that_fits(self):
        text = self.shown("--schedule", "all", "--transfer", "100us", COLUMNS="60")
        lines = text.splitlines()
        self.assertEqual([line.split()[0] for line in lines[2:6]], KINDS)
        self.assertTrue(all(len(line) <= 60 for line in lines[1:6]), text)
        self.assertIn("(--wide adds: ", text)
        self.assertIn("messages", self.shown("--schedule", "all", "--wide").splitlines()[1])

    def test_json_holds_times_and_programs_that_belong_together(self):
        data = self.exported("--schedule", "all", "--stages", "3", "--micro-batches", "6", "--transfer", "250us")
        self.assertEqual(data["format"], "tutti pipeline 1")
        self.assertEqual([each["schedule"] for each in data["schedules"]], KINDS)
        for each in data["schedules"]:
            self.assertAlmostEqual(each["step_s"], each["compute_s"] + each["bubble_s"])
            self.assertEqual(len(each["ranks"]), 3)
            for rank in each["ranks"]:
                computed = [(op["op"], op["micro_batch"], op.get("virtual_stage", 0))
                            for op in rank["program"] if "peer" not in op]
                self.assertEqual([(s["op"], s["micro_batch"], s["virtual_stage"]) for s in rank["slices"]], computed)
                self.assertLessEqual(rank["activations"], rank["activation_bound"])
                self.assertAlmostEqual(sum(s["end_s"] - s["begin_s"] for s in rank["slices"]), rank["busy_s"])

    def test_times_are_of_a_whole_stage(self):
        steps = [self.exported("--schedule", "interleaved", "--virtual", str(v))["schedules"][0] for v in (1, 2, 4)]
        self.assertEqual([round(step["compute_s"], 9) for step in steps], [0.024] * 3)
        self.assertEqual([round(step["bubble_s"], 9) for step in steps], [0.009, 0.0045, 0.00225])

    def test_stopping_for_messages_takes_longer_than_computing_meanwhile(self):
        words = ["--schedule", "interleaved", "--transfer", "300us"]
        beside, stopping = (self.exported(*words, *more)["schedules"][0]["step_s"] for more in ([], ["--stop"]))
        self.assertLess(beside, stopping)

    def test_the_drawing_has_a_cell_for_every_op(self):
        self.shown("--schedule", "all", "--stages", "2", "--micro-batches", "3", "--svg", self.path("a.svg"))
        drawing = xml.parse(self.path("a.svg")).getroot()
        cells = drawing.findall(f"{SVG}g[@class='cell']")
        self.assertEqual(len(cells), 2 * 3 * (2 + 2 + 2 * 2 + 3))
        self.assertTrue(all(cell.find(f"{SVG}title").text for cell in cells))

    def test_the_page_holds_every_schedule(self):
        self.shown("--schedule", "zb-h1", "--html", self.path("page.html"))
        with open(self.path("page.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertIsNone(re.search(r'(src|href)="(?!data:)', page), "asks for another file")
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
        self.assertEqual([each["schedule"] for each in data["schedules"]], KINDS)
        self.assertEqual(data["start"], "zb-h1")

    def test_what_cannot_be_is_refused_with_what_can(self):
        self.refused(["--schedule", "2f2b"], "there are gpipe, 1f1b, interleaved, zb-h1, forward and all")
        self.refused(["--virtual", "2"], "interleaved has several")
        self.refused(["--stages", "0"], "--stages: 0 lies outside 1 … 64")
        self.refused(["--weight", "3ms"], "--weight 3ms is more than --backward 2ms")
        self.refused(["--forward", "0", "--backward", "0"], "must not both be 0")
        self.refused(["--transfer", "2h"], "--transfer 2h lies outside")
        self.refused(["--json", "--svg", self.path("a.svg")], "exclude each other")
        self.refused(["--svg", self.path("none/a.svg")], "none")


if __name__ == "__main__":
    unittest.main()
