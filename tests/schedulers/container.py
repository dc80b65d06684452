"""deploy/Dockerfile: whatever it copies and runs is there, and a clean clone has all that it needs. (No engine that
builds images runs here.)"""
import os
import re
import shlex
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
DOCKERFILE = os.path.join(SOURCE, "deploy", "Dockerfile")


def steps():
    """(word, rest) of every step, continued lines joined."""
    with open(DOCKERFILE) as file:
        lines = [line for line in file.read().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def commands():
    """The commands of all RUN steps, each as its words."""
    for word, rest in steps():
        if word == "RUN":
            yield from (shlex.split(part) for part in rest.split("&&"))


class Recipe(unittest.TestCase):
    def test_it_is_made_of_steps_that_an_engine_knows(self):
        words = [word for word, _ in steps()]
        self.assertEqual(words[0], "FROM")
        self.assertLessEqual(set(words), {"FROM", "WORKDIR", "COPY", "RUN", "CMD", "ENV"})
        self.assertTrue(all(rest.startswith("debian:12") for word, rest in steps() if word == "FROM"))

    def test_what_is_copied_is_in_the_tree_or_made_by_an_earlier_stage(self):
        stages = [match[1] for word, rest in steps() if word == "FROM" and (match := re.search(r" AS (\w+)$", rest))]
        (workdir,) = [rest for word, rest in steps() if word == "WORKDIR"]
        made = os.path.join(workdir, "dist")  # where scripts/package puts them
        for words in (rest.split() for word, rest in steps() if word == "COPY"):
            if words[0].startswith("--from="):
                self.assertIn(words[0].removeprefix("--from="), stages)
                self.assertEqual(words[1], made)
            else:
                self.assertTrue(all(os.path.exists(os.path.join(SOURCE, path)) for path in words[:-1]), words)

    def test_scripts_are_there_and_take_what_they_are_given(self):
        with open(os.path.join(SOURCE, "quickstart")) as file:
            quickstart = file.read()
        scripts = [words for words in commands() if words[0].startswith("scripts/")]
        self.assertEqual(scripts[0], ["scripts/install_packages", "training"])
        self.assertIn(" ".join(scripts[0]), quickstart)
        for words in scripts:
            self.assertTrue(os.access(os.path.join(SOURCE, words[0]), os.X_OK), words)
        (package,) = [words for words in scripts if words[0] == "scripts/package"]
        with open(os.path.join(SOURCE, "cmake", "package.cmake")) as file:
            known = file.read()
        self.assertEqual(package[1:3], ["deb", "--only"])
        for component in package[3].split(","):
            self.assertIn(component, known)


if __name__ == "__main__":
    unittest.main(verbosity=2)
