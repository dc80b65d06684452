#!/usr/bin/env python3
"""`tutti show redistribute` on the command line: text, JSON, a page, and everything that must be refused."""
import json
import os
import re
import unittest

from launching import LaunchTest

MATRIX = ["--mesh", "dp=2,tp=4", "--shape", "1024x4096", "--dtype", "bf16"]
NESTED = [*MATRIX, "--from", "partial,shard(0)", "--to", "shard(0),shard(0)", "--hosts", "2"]


class RedistributeTest(LaunchTest):
    def shown(self, *words):
        answer = self.tutti("show", "redistribute", *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout

    def refused(self, words, complaint):
        answer = self.tutti("show", "redistribute", *words)
        self.assertEqual((answer.returncode, answer.stdout), (2, ""), answer)
        self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        self.assertIn(complaint, answer.stderr)

    def test_text_tells_steps_prices_and_who_holds_what(self):
        text = self.shown(*MATRIX, "--from", "shard(0),replicate", "--to", "shard(1),replicate")
        self.assertRegex(text, r"1  all_to_all +dp +2 +4\.19 MB +2\.10 MB")
        self.assertIn("axis by axis, as DTensor goes on CPU groups: all_gather dp, slice dp", text)
        self.assertRegex(text, r"0\.\.511 +0-3\n +512\.\.1023 +4-7")
        self.assertRegex(text, r"times as long\.")

    def test_partial_values_are_drawn_as_sums(self):
        text = self.shown("--mesh", "dp=2,tp=2", "--shape", "6", "--from", "partial,shard(0)", "--to",
                          "replicate,shard(0)")
        self.assertRegex(text, r"0\.\.2 +0 \+ 2\n +3\.\.5 +1 \+ 3")
        self.assertRegex(text, r"all_reduce +dp")

    def test_json_has_both_chains_and_their_prices(self):
        document = json.loads(self.shown(*NESTED, "--json"))
        self.assertEqual(document["format"], "tutti redistribution 1")
        self.assertEqual(document["hosts"], [0, 0, 0, 0, 1, 1, 1, 1])
        self.assertEqual([step["step"] for step in document["naive"]["steps"]],
                         ["all_gather", "reduce_scatter", "slice"])
        for chain in (document["chain"], document["naive"]):
            self.assertAlmostEqual(sum(step["seconds"] for step in chain["steps"]), chain["seconds"])
            self.assertEqual(sum(step["rank_bytes"] for step in chain["steps"]), chain["rank_bytes"])
            self.assertEqual(chain["steps"][-1]["after"]["placements"], document["to"]["placements"])
        self.assertLess(document["chain"]["seconds"], document["naive"]["seconds"])

    def test_hosts_decide_what_a_step_costs(self):
        words = [*MATRIX, "--from", "shard(0),replicate", "--to", "replicate,replicate", "--json"]
        apart = json.loads(self.shown(*words, "--hosts", "8"))["chain"]["seconds"]
        together = json.loads(self.shown(*words, "--hosts", "1"))["chain"]["seconds"]
        self.assertLess(together, apart)

    def test_the_page_is_one_file_that_holds_everything(self):
        path = os.path.join(self.folder, "page.html")
        said = self.shown(*NESTED, "--html", path)
        self.assertRegex(said, r"^wrote .*page\.html \(\d+ KiB\)\n$")
        with open(path, encoding="utf-8") as file:
            page = file.read()
        self.assertIsNone(re.search(r'(src|href)="(?!data:)', page), "asks for another file")
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
        self.assertEqual(len(data["from"]["boxes"]), 8)
        self.assertEqual(data["to"]["boxes"][7], {"first": [896, 0], "shape": [128, 4096]})

    def test_wrong_words_are_refused_by_name(self):
        ends = ["--from", "replicate", "--to", "replicate"]
        self.refused(["--mesh", "dp2", "--shape", "4", *ends], "--mesh dp2: a mesh is NAME=SIZE")
        self.refused(["--mesh", "dp=2,dp=2", "--shape", "4", *ends], "two axes 'dp'")
        self.refused(["--mesh", "dp=2", "--shape", "4xx", *ends], "--shape 4xx")
        self.refused(["--mesh", "dp=2", "--shape", "x", *ends], "--shape x")
        self.refused(["--mesh", "dp=2", "--shape", "4", "--dtype", "f99", *ends], "--dtype f99")
        self.refused(["--mesh", "dp=2", "--shape", "4", "--from", "whole", "--to", "replicate"], "'whole' is no placement")
        self.refused(["--mesh", "dp=2,tp=2", "--shape", "4", *ends], "1 placements (replicate) for 2 axes")
        self.refused(["--mesh", "dp=2", "--shape", "4", "--from", "shard(1)", "--to", "replicate"], "shard(1) along 'dp'")
        self.refused(["--mesh", "dp=4", "--shape", "4", "--hosts", "3", *ends], "--hosts 3")
        self.refused(["--mesh", "dp=4", "--shape", "4", "--cluster", "nowhere", *ends], "no cluster 'nowhere'")
        self.refused(["--mesh", "dp=128", "--shape", "4", "--html", os.path.join(self.folder, "p"), *ends], "--html draws up to")
        self.refused(["--mesh", "dp=2", "--shape", "4", "--json", "--html", "p", *ends], "exclude each other")
        self.refused(["--mesh", "dp=2", "--shape", "4", "--html", "/nowhere/p.html", *ends], "--html")


if __name__ == "__main__":
    unittest.main()
