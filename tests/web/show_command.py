#!/usr/bin/env python3
"""`tutti show` on the command line: pages, drawings, text, and everything that must be refused."""
import json
import os
import re
import unittest
import xml.etree.ElementTree as xml

from launching import LaunchTest

SVG = "{http://www.w3.org/2000/svg}"


class ShowTest(LaunchTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def shown(self, *words):
        answer = self.tutti("show", *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertTrue(answer.stdout)
        return answer.stdout

    def refused(self, words, complaint, code=2):
        answer = self.tutti("show", *words)
        self.assertEqual((answer.returncode, answer.stdout), (code, ""), answer)
        self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        self.assertIn(complaint, answer.stderr)

    def test_text_stays_the_default(self):
        words = ["all_reduce", "--algorithm", "ring", "-n", "4"]
        text = self.shown(*words)
        self.assertIn("program all_reduce ring rank 3 of 4 root 0 cut 4\n", text)
        self.assertEqual(self.shown(*words, "--text"), text)

    def test_the_page_is_one_file_that_holds_everything(self):
        said = self.shown("all_reduce", "--algorithm", "double_binary_tree", "-n", "8", "--html",
                          self.path("page.html"))
        self.assertRegex(said, r"^wrote .*page\.html \(\d+ KiB\)\n$")
        page = self.read("page.html")
        self.assertLess(len(page), 2 << 20)
        self.assertIsNone(re.search(r'(src|href)="(?!data:)', page), "asks for another file")
        self.assertNotIn("/*DATA*/", page)
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
        self.assertEqual(data["format"], "tutti page 1")
        self.assertEqual({schedule["size"] for schedule in data["schedules"]}, set(range(2, 17)))
        start = [schedule for schedule in data["schedules"] if schedule["size"] == 8 and
                 schedule["algorithm"] == "double_binary_tree" and schedule["in_place"]][0]
        self.assertEqual(start["layout"]["kind"], "two_trees")
        self.assertEqual(os.listdir(self.folder), ["page.html"])  # nothing half-written beside it

    def test_the_page_holds_the_very_ops_of_the_schedule(self):
        self.shown("all_gather", "--algorithm", "ring", "-n", "3", "--html", self.path("page.html"))
        data = json.loads(re.search(r'id="data">(.*?)</script>', self.read("page.html"), re.S).group(1))
        drawn = [schedule for schedule in data["schedules"] if schedule["size"] == 3 and
                 schedule["algorithm"] == "ring" and schedule["in_place"]][0]
        exported = json.loads(self.shown("all_gather", "--algorithm", "ring", "-n", "3", "--in-place",
                                         "--json"))
        kinds = ["send", "recv", "copy", "reduce"]
        for rank, program in zip(drawn["ranks"], exported["programs"]):
            self.assertEqual([(kinds[op[0]], op[1]) for op in rank["ops"]],
                             [(op["op"], op["step"]) for op in program["ops"]])

    def test_without_an_algorithm_the_page_takes_the_tuners(self):
        self.shown("all_to_all", "-n", "5", "--html", self.path("page.html"))
        self.assertRegex(self.read("page.html"), r"<title>all_to_all by \w+ on 5 ranks</title>")

    def test_the_drawing_has_an_arrow_for_every_message(self):
        for algorithm, messages in [("ring", 24), ("direct", 24), ("binomial_tree", 6)]:
            self.shown("all_reduce", "-a", algorithm, "-n", "4", "--svg", self.path("a.svg"))
            root = xml.fromstring(self.read("a.svg"))
            self.assertEqual(root.tag, SVG + "svg")
            arrows = [g for g in root.iter(SVG + "g") if g.get("class") == "message"]
            self.assertEqual(len(arrows), messages, algorithm)
            self.assertIn("all_reduce by " + algorithm, root.get("aria-label"))

    def test_a_barrier_and_one_rank_can_be_drawn(self):
        for words in (["barrier", "-n", "5"], ["all_reduce", "-n", "1"], ["all_reduce", "-n", "32"]):
            self.shown(*words, "--svg", self.path("a.svg"))
            xml.fromstring(self.read("a.svg"))
        for words in (["barrier", "-n", "5"], ["all_reduce", "-n", "1"]):
            self.shown(*words, "--html", self.path("a.html"))

    def test_an_old_file_is_replaced_and_a_failure_leaves_it(self):
        with open(self.path("a.svg"), "w") as file:
            file.write("old")
        self.refused(["all_reduce", "-a", "hypercube", "--svg", self.path("a.svg")], "there is no hypercube")
        self.assertEqual(self.read("a.svg"), "old")
        self.shown("all_reduce", "-a", "ring", "--svg", self.path("a.svg"))
        self.assertTrue(self.read("a.svg").startswith("<svg"))

    def test_stdout_takes_a_drawing_too(self):
        self.assertTrue(self.shown("all_reduce", "-a", "ring", "--svg", "/dev/stdout").startswith("<svg"))

    def test_costs_come_from_the_table_that_is_named(self):
        with open(self.path("bad.json"), "w") as file:
            file.write('{"format": "other"}')
        self.refused(["all_reduce", "--html", self.path("a.html"), "--tuning", self.path("bad.json")],
                     "--tuning " + self.path("bad.json"))
        self.refused(["all_reduce", "--html", self.path("a.html"), "--tuning", self.path("none.json")],
                     "none.json cannot be read")

    def test_what_cannot_be_is_refused_in_one_line(self):
        a = self.path("a.html")
        self.refused([], "say what to show")
        self.refused(["all_reduse", "--html", a], "all_reduse")
        self.refused(["all_reduce", "--html", self.path("no/such/a.html")], "there is no folder")
        self.refused(["all_reduce", "--html", self.folder], "it is a folder")
        self.refused(["all_reduce", "-n", "33", "--html", a], "more than can be drawn")
        self.refused(["all_reduce", "--html", a, "--svg", a], "exclude each other")
        self.refused(["all_reduce", "--html", a, "--json"], "exclude each other")
        self.refused(["all_reduce", "-a", "spiral", "--html", a], "spiral")
        self.refused(["all_reduce", "-a", "hierarchical", "-n", "8", "--html", a], "hierarchical")
        self.refused(["all_reduce", "--html", a, "--bytes", "many"], "--bytes")
        self.refused(["job", "--interval", "1ms"], "--interval")
        self.assertFalse(os.path.exists(a))

    def test_help_has_examples(self):
        for words in (["show"], ["show", "job"]):
            answer = self.tutti(*words, "--help")
            self.assertEqual(answer.returncode, 0)
            self.assertIn("Examples:", answer.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
