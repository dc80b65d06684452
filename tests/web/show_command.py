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
        self.assertEqual(data["format"], "tutti page 2")
        self.assertEqual({schedule["size"] for schedule in data["schedules"]}, set(range(2, 17)))
        start = [schedule for schedule in data["schedules"] if schedule["size"] == 8 and
                 schedule["algorithm"] == "double_binary_tree" and schedule["in_place"]][0]
        self.assertEqual(start["layout"]["kind"], "two_trees")
        self.assertEqual(os.listdir(self.folder), ["page.html"])  # nothing half-written beside it

    def page_data(self, *words):
        self.shown(*words, "--html", self.path("page.html"))
        return json.loads(re.search(r'id="data">(.*?)</script>', self.read("page.html"), re.S).group(1))

    def test_the_page_holds_the_very_ops_of_the_schedule(self):
        data = self.page_data("all_reduce", "--algorithm", "ring", "-n", "3")
        drawn = [schedule for schedule in data["schedules"] if schedule["size"] == 3 and
                 schedule["algorithm"] == "ring" and schedule["in_place"]][0]
        exported = json.loads(self.shown("all_reduce", "--algorithm", "ring", "-n", "3", "--in-place",
                                         "--form", "message", "--json"))
        kinds = ["send", "recv", "copy", "reduce"]

        def compare(form, export):
            self.assertEqual(form["pass"], export["pass"])
            for rank, program in zip(form["ranks"], export["programs"], strict=True):
                self.assertEqual([(kinds[op[0]], op[1]) for op in rank["ops"]],
                                 [(op["op"], op["step"]) for op in program["ops"]])
        compare(drawn, exported)
        self.assertEqual(drawn["pass"], "fuse_folds")
        self.assertEqual([each["pass"] for each in drawn["before"]], ["as built"])
        compare(drawn["before"][0], exported["before"][0])

    def test_the_page_holds_the_very_moves_of_the_host_form(self):
        data = self.page_data("all_reduce", "-n", "4", "--form", "host")
        self.assertEqual((data["start"]["placement"], data["start"]["algorithm"]), ("one_host", "direct"))
        exported = json.loads(self.shown("all_reduce", "-n", "4", "--form", "host", "--in-place", "--json"))
        runs = {form["reach"]: form for form in exported["forms"] if form["runs"]}
        self.assertEqual(set(runs), {"window", "mapped"})
        actions = ["show", "copy", "take", "give"]
        for memory, reach in [("ordinary", "window"), ("symmetric", "mapped")]:
            drawn, = [each for each in data["schedules"] if each["form"] == "host" and each["size"] == 4 and
                      each["algorithm"] == "direct" and each["in_place"] and
                      any(first <= 20 <= last for first, last, _ in each["runs"].get(memory, []))]
            self.assertEqual(drawn["reach"], reach)
            for rank, phases in zip(drawn["ranks"], runs[reach]["ranks"], strict=True):
                for seen, phase in zip(rank["phases"], phases, strict=True):
                    self.assertEqual([actions[op[0]] for op in seen if op[0] < 4],
                                     [move["action"] for move in phase["moves"]])
                    self.assertEqual([len(op[3]) for op in seen if op[0] == 4],
                                     [len(phase["fold"]["operands"])] if phase["fold"] else [])

    def test_without_a_form_it_shows_what_runs_there_and_says_so(self):
        text = self.shown("all_reduce", "-n", "4")
        self.assertIn("# all_reduce by direct on 4 ranks, 1 MiB: host form\n", text)
        self.assertIn("all ranks share a host with a core for each (assumed, as no --hosts are named)", text)
        self.assertIn("The tuner takes direct here", text)
        self.assertIn("--form message", text)
        self.assertNotIn("\nprogram ", text)
        text = self.shown("all_reduce", "--hosts", "4x1", "-a", "direct")
        self.assertIn(": message form\n# It runs where every rank has a host of its own.\n", text)
        self.assertIn("--form host", text)
        self.assertNotIn("\nhost ", text)
        self.assertIn("2 hosts have 3 ranks each", self.shown("all_reduce", "--hosts", "2x3"))
        text = self.shown("all_reduce", "-n", "4", "-a", "ring")
        self.assertIn("Messages, as there is no host form: rank 0 folds more than once.", text)

    def test_passes_are_named_and_the_last_one_runs(self):
        text = self.shown("all_reduce", "-a", "ring", "-n", "4", "--form", "message")
        before, after = text.split("# after fuse_folds: ")
        self.assertIn("\n# as built\nprogram", before)
        self.assertIn("recv scratch[0]", before)
        self.assertIn("; this is what runs\nprogram", after)
        self.assertNotIn("scratch", after)
        self.assertEqual(text.count("this is what runs"), 1)
        # Where it would not run, it does not say so.
        self.assertNotIn("this is what runs",
                         self.shown("all_reduce", "-a", "direct", "--hosts", "1x4", "--form", "message"))

    def test_the_size_and_the_memory_decide_which_host_form_runs(self):
        def forms(*words):
            document = json.loads(self.shown("all_reduce", "-n", "4", "--form", "host", "--json", *words))
            self.assertEqual((document["form"], document["pass"]), ("host", "lower"))
            return {form["reach"]: form for form in document["forms"]}
        tiny = forms("--bytes", "16")
        self.assertEqual([reach for reach, form in tiny.items() if form["runs"]], ["window"])
        self.assertEqual(tiny["window"]["meetings"], 1)
        self.assertNotIn("ranks", tiny["mapped"])
        self.assertIn("ranks", forms("--bytes", "16", "--all")["mapped"])
        large = forms("--memory", "symmetric")
        self.assertEqual([reach for reach, form in large.items() if form["runs"]], ["mapped"])
        self.assertIn("ordinary memory", large["window"]["when"])

    def test_the_host_form_is_drawn_with_its_meetings(self):
        def drawn(*words):
            self.shown(*words, "--svg", self.path("a.svg"))
            root = xml.fromstring(self.read("a.svg"))
            count = lambda kind: sum(each.get("class") == kind for each in root.iter())
            return {kind: count(kind) for kind in ("meet", "touch", "fold", "slots", "message")}, root
        seen, root = drawn("all_reduce", "-n", "4")
        # Every rank folds what three others show, and then takes what they made of it.
        self.assertEqual(seen, {"meet": 2, "touch": 24, "fold": 4, "slots": 8, "message": 0})
        self.assertIn("host form", root.get("aria-label"))
        seen, _ = drawn("all_reduce", "-n", "4", "--memory", "symmetric")
        self.assertEqual(seen, {"meet": 2, "touch": 24, "fold": 4, "slots": 0, "message": 0})
        seen, _ = drawn("broadcast", "-n", "4", "--bytes", "64")
        self.assertEqual(seen, {"meet": 1, "touch": 3, "fold": 0, "slots": 1, "message": 0})
        seen, _ = drawn("barrier", "-n", "4")
        self.assertEqual(seen, {"meet": 1, "touch": 0, "fold": 0, "slots": 0, "message": 0})

    def test_every_output_of_both_forms(self):
        for collective in ("all_reduce", "all_gather", "broadcast", "barrier", "reduce_scatter", "all_to_all"):
            for n in ("2", "4", "8"):
                for form in ("host", "message"):
                    words = [collective, "-n", n, "--form", form]
                    self.assertIn("# verified: ", self.shown(*words))
                    self.assertEqual(json.loads(self.shown(*words, "--json"))["form"], form)
                    self.assertIn(f"{form} form", self.shown(*words, "--svg", "/dev/stdout"))

    def test_the_list_says_what_the_tuner_takes(self):
        text = self.shown("all_reduce")
        self.assertIn("For 1 MiB the tuner takes direct on one host, ", text)
        self.assertEqual(self.shown("all_reduce", "-n", "4", "--list"), text)
        rows = json.loads(self.shown("barrier", "--json"))
        self.assertEqual(rows["choice"]["one_host"], "direct")
        self.assertEqual({row["host_form"]["meetings"] for row in rows["algorithms"] if "steps" in row}, {1})

    def test_without_an_algorithm_the_page_takes_the_tuners(self):
        self.shown("all_to_all", "-n", "5", "--html", self.path("page.html"))
        self.assertRegex(self.read("page.html"), r"<title>all_to_all by \w+ on 5 ranks</title>")

    def test_the_drawing_has_an_arrow_for_every_message(self):
        for algorithm, messages in [("ring", 24), ("direct", 24), ("binomial_tree", 6)]:
            self.shown("all_reduce", "-a", algorithm, "-n", "4", "--form", "message", "--svg", self.path("a.svg"))
            root = xml.fromstring(self.read("a.svg"))
            self.assertEqual(root.tag, SVG + "svg")
            arrows = [g for g in root.iter(SVG + "g") if g.get("class") == "message"]
            self.assertEqual(len(arrows), messages, algorithm)
            self.assertIn("all_reduce by " + algorithm, root.get("aria-label"))

    def drawn_wires(self, *words):
        """[(y, left, right)] of the lines along which messages go, and the words on them."""
        self.shown(*words, "--form", "message", "--svg", self.path("a.svg"))
        root = xml.fromstring(self.read("a.svg"))
        lines = [line for group in root.iter(SVG + "g") if group.get("class") == "wires"
                 for line in group.findall(SVG + "line")]
        labels = [text.text for text in root.iter(SVG + "text") if text.get("class") == "label"]
        return [(line.get("y1"), *sorted(float(line.get(end)) for end in ("x1", "x2"))) for line in lines], labels

    def test_arrows_of_the_drawing_never_lie_on_each_other(self):
        for words in (["all_to_all", "-a", "bruck", "-n", "5"], ["all_gather", "-a", "bruck", "-n", "8"],
                      ["all_reduce", "-a", "direct", "-n", "8"], ["all_reduce", "-a", "double_binary_tree", "-n", "7"]):
            wires, _ = self.drawn_wires(*words)
            self.assertGreater(len(wires), 10)
            for y, left, right in wires:
                self.assertEqual(sum(y == other and left < end and start < right for other, start, end in wires), 1, words)

    def test_numbers_of_chunks_that_wrap_around_are_ranges_that_ascend(self):
        _, labels = self.drawn_wires("all_to_all", "-a", "bruck", "-n", "5")
        self.assertIn("2, 22", labels)  # once "2–22", as if all between them were there
        _, gathered = self.drawn_wires("all_gather", "-a", "bruck", "-n", "8")
        self.assertIn("4–7", gathered)
        for first, last in re.findall(r"(\d+)–(\d+)", " ".join(labels + gathered)):
            self.assertLess(int(first), int(last))
        # Of many, as many as there is room for.
        _, labels = self.drawn_wires("all_to_all", "-a", "bruck", "-n", "32")
        self.assertTrue(any(label.endswith(" …") for label in labels), labels)
        self.assertLess(max(map(len, labels)), 48)

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
        self.refused(["all_reduce", "--form", "hoast"], "there is no form 'hoast'; there are: message, host")
        self.refused(["all_reduce", "-a", "ring", "--form", "host", "--html", a], "there is no host form")
        self.refused(["all_reduce", "-n", "1", "--form", "host"], "nobody to meet")
        self.refused(["all_reduce", "-n", "65", "--form", "host"], "more than 64 ranks")
        self.refused(["all_reduce", "--form", "host", "--hosts", "2x2"], "--hosts 2x2")
        self.refused(["all_reduce", "--form", "message", "--memory", "symmetric"], "--memory is about host forms")
        self.refused(["all_reduce", "--hosts", "2x2", "--all"], "--all is about host forms")
        self.refused(["all_reduce", "-n", "4", "--memory", "magic"], "magic")
        self.refused(["all_reduce", "--list", "--form", "host"], "--list and --form exclude each other")
        self.refused(["all_reduce", "--list", "--svg", a], "--list and --svg exclude each other")
        # Older versions had these.
        self.refused(["all_reduce", "-n", "4", "--fused"], "--form message shows")
        self.refused(["all_reduce", "-n", "4", "--shots", "1"], "say --bytes")
        self.assertFalse(os.path.exists(a))

    def test_help_has_examples(self):
        for words in (["show"], ["show", "job"]):
            answer = self.tutti(*words, "--help")
            self.assertEqual(answer.returncode, 0)
            self.assertIn("Examples:", answer.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
