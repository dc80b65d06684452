"""`tutti data build`: the tokens are those of plain implementations, the files are Megatron's, what is unknown is named."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from collections import Counter

TOOL = os.environ["TUTTI_TOOL"]
LIMIT = 120  # seconds; only against hangs
LICENCES = "/usr/share/common-licenses/"
# GPT-2's, in the words of Python's re.
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
TEXTS = ["It's the licence's 3rd copy,   isn't it?\n\n  We'll see: 12345 times…", "Straße, naïve café; 東京 と 大阪!",
         "tabs\tand  trailing spaces   ", "\n", "x" * 3000 + " yz" * 500, "émigré ünïcödé 'tis 'TWAS"]


def content(path):
    with open(path, "rb") as file:
        return file.read()


def letters():
    """How byte-level BPE writes bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(0x100 + i) for i, byte in enumerate(others)}}


LETTERS = letters()


def spelt(word):
    return [LETTERS[byte] for byte in word.encode()]


def merged(parts, pair):
    made, at = [], 0
    while at < len(parts):
        both = tuple(parts[at:at + 2]) == pair
        made.append("".join(pair) if both else parts[at])
        at += 2 if both else 1
    return made


def train_bpe(text, count):
    """The merges of the most frequent neighbours, one after the other."""
    words = Counter(tuple(spelt(word)) for word in WORDS.findall(text))
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({tuple(merged(list(word), best)): times for word, times in words.items()})
    return merges


class Bpe:
    def __init__(self, merges):
        self.merges = merges
        self.vocabulary = {letter: i for i, letter in enumerate(LETTERS.values())}
        for pair in merges:
            self.vocabulary.setdefault("".join(pair), len(self.vocabulary))
        self.end = len(self.vocabulary)

    def file(self, **more):
        return {"version": "1.0", "normalizer": None,
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                "added_tokens": [{"id": self.end, "content": "<|endoftext|>", "special": True}],
                "model": {"type": "BPE", "dropout": None, "byte_fallback": False, "vocab": self.vocabulary,
                          "merges": [" ".join(pair) for pair in self.merges]}, **more}

    def encode(self, text):
        tokens = []
        for word in WORDS.findall(text):
            parts = spelt(word)
            for pair in self.merges:
                parts = merged(parts, pair)
            tokens += [self.vocabulary[part] for part in parts]
        return tokens


def read_set(prefix):
    """The documents of PREFIX.idx and PREFIX.bin, by what Megatron writes down of the format."""
    index = content(prefix + ".idx")
    magic, version, kind, sequences, entries = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, entries) == (b"MMIDIDX\0\0", 1, sequences + 1)
    at = 34
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    offsets = struct.unpack_from(f"<{sequences}q", index, at + 4 * sequences)
    documents = struct.unpack_from(f"<{entries}q", index, at + 12 * sequences)
    assert list(documents) == list(range(entries)) and len(index) == at + 12 * sequences + 8 * entries
    letter, width = {8: ("H", 2), 4: ("i", 4)}[kind]
    tokens = content(prefix + ".bin")
    assert sum(lengths) * width == len(tokens)
    return [list(struct.unpack_from(f"<{length}{letter}", tokens, offset)) for length, offset in zip(lengths, offsets)]


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def build(self, *words, code=0):
        done = subprocess.run([TOOL, "data", "build", *words], capture_output=True, text=True, timeout=LIMIT,
                              env={name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def lines(self, texts):
        return self.path("texts.jsonl", "".join(json.dumps({"text": text}) + "\n\n" for text in texts))

    def test_bytes_of_each_file_are_a_document(self):
        names = [LICENCES + name for name in ("BSD", "Artistic")]
        done = self.build("-o", self.path("set"), "--json", *names)
        made = read_set(self.path("set"))
        self.assertEqual(made, [[*content(name), 256] for name in names])
        told = json.loads(done.stdout)
        self.assertEqual((told["documents"], told["tokens"], told["vocab_size"]), (2, sum(map(len, made)), 257))
        self.assertEqual(content(self.path("set.tokens")), b"vocab_size 257\nend_of_document 256\ntokenizer bytes\n")
        self.build("-o", self.path("set"), "--no-eod", names[0])
        self.assertEqual(read_set(self.path("set")), [[*content(names[0])]])

    def test_a_long_document_is_written_as_it_comes_and_given_up_at_once(self):
        bpe = Bpe(train_bpe(content(LICENCES + "GPL-3").decode()[:5000], 50))
        tokenizer = self.path("tokenizer.json", json.dumps(bpe.file()))
        book = self.path("book", content(LICENCES + "GPL-3") * 1000)  # 35 MB, a document
        running = subprocess.Popen([TOOL, "data", "build", "--tokenizer", tokenizer, "--no-eod", "-o", self.path("set"),
                                    book], stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.kill)
        written = 0
        while written < 4 << 20:
            self.assertIsNone(running.poll(), "nothing was written before the document was through")
            written = int(re.search(rb"wchar: (\d+)", content(f"/proc/{running.pid}/io"))[1])
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=LIMIT)
        self.assertLess(time.monotonic() - began, 2)
        self.assertEqual(running.returncode, 130, errors)
        self.assertEqual(sorted(os.listdir(self.folder)), ["book", "tokenizer.json"])

    def test_byte_level_bpe_is_that_of_a_plain_implementation(self):
        bpe = Bpe(train_bpe(content(LICENCES + "GPL-3").decode()[:20000] + " ".join(TEXTS), 300))
        files = {"gpt2": bpe.file(), "pairs": bpe.file(), "split": bpe.file(), "whole": bpe.file()}
        files["pairs"]["model"]["merges"] = bpe.merges
        files["split"]["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"\s+|[^\s]+"}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}
        texts = [*TEXTS, content(LICENCES + "Artistic").decode()]
        for name, file in files.items():
            tokenizer = self.path(name + ".json", json.dumps(file))
            self.build("-o", self.path(name), "--tokenizer", tokenizer, self.lines(texts))
            if name != "split":
                self.assertEqual(read_set(self.path(name)), [bpe.encode(text) + [bpe.end] for text in texts], name)
        # Other cuts, other tokens; and the same text.
        words = {token: word for word, token in bpe.vocabulary.items()}
        byte_of = {letter: byte for byte, letter in LETTERS.items()}
        split = read_set(self.path("split"))
        self.assertNotEqual(split, read_set(self.path("gpt2")))
        for tokens, text in zip(split, texts):
            spelt_out = "".join(words[token] for token in tokens[:-1])
            self.assertEqual(bytes(byte_of[letter] for letter in spelt_out).decode(), text)

    def test_a_whole_word_of_the_vocabulary_needs_no_merges_where_the_file_says_so(self):
        bpe = Bpe([])
        file = bpe.file()
        file["model"]["vocab"] = {**bpe.vocabulary, "tutti": 300}
        file["added_tokens"] = []
        for ignores, wanted in ((False, [bpe.vocabulary[letter] for letter in "tutti"]), (True, [300])):
            file["model"]["ignore_merges"] = ignores
            self.build("-o", self.path("set"), "--no-eod", "--tokenizer", self.path("t.json", json.dumps(file)),
                       self.lines(["tutti"]))
            self.assertEqual(read_set(self.path("set")), [wanted])

    @unittest.skipUnless(shutil.which("spm_train"), "spm_train of SentencePiece is not there")
    def test_sentence_pieces_are_those_of_its_own_program(self):
        subprocess.run(["spm_train", f"--input={LICENCES}GPL-3", f"--model_prefix={self.path('m')}", "--vocab_size=400",
                        "--minloglevel=2"], check=True, capture_output=True, timeout=LIMIT)
        texts = [text.replace("\n", " ").strip() for text in TEXTS if text.strip()]
        wanted = subprocess.run(["spm_encode", f"--model={self.path('m.model')}", "--output_format=id"],
                                input="\n".join(texts) + "\n", capture_output=True, text=True, check=True, timeout=LIMIT)
        self.build("-o", self.path("set"), "--tokenizer", self.path("m.model"), self.lines(texts))
        self.assertEqual(read_set(self.path("set")),
                         [[*map(int, line.split()), 2] for line in wanted.stdout.splitlines()])

    def test_what_is_not_known_is_refused_by_name_and_nothing_is_written(self):
        text = self.path("text", "some text")

        def refused(words, *arguments, prefix="set"):
            done = self.build("-o", self.path(prefix), *arguments, code=2)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("set")])

        def tokenizer(change):
            file = Bpe([]).file()
            change(file)
            return ["--tokenizer", self.path("t.json", json.dumps(file)), text]

        refused("its model is of the kind 'Unigram'", *tokenizer(lambda file: file["model"].update(type="Unigram")))
        refused("byte_fallback", *tokenizer(lambda file: file["model"].update(byte_fallback=True)))
        refused("its normalizer is of the kind 'NFC'", *tokenizer(lambda file: file.update(normalizer={"type": "NFC"})))
        refused("of the kind 'Metaspace'", *tokenizer(lambda file: file.update(pre_tokenizer={"type": "Metaspace"})))
        refused("its added token 'x y'", *tokenizer(lambda file: file["added_tokens"].append(
            {"id": 900, "content": "x y", "special": False})))
        refused("no token for byte", *tokenizer(lambda file: file["model"]["vocab"].pop("a")))
        refused("merge", *tokenizer(lambda file: file["model"]["merges"].append("a bcd")))
        refused("--eod", *tokenizer(lambda file: file.update(added_tokens=[])))
        refused("--eod 'fin' is no token", "--eod", "fin", text)
        refused("neither bytes", "--tokenizer", "words", text)
        refused("cannot be read", "--tokenizer", self.path("none.json"), text)
        refused("none.txt", self.path("none.txt"))
        refused("line 2: there is no text in the field 'text'", self.path("x.jsonl", '{"text":"a"}\n{"words":"b"}\n'))
        refused("hold", self.path("empty.jsonl", ""))
        refused("cannot be written", text, prefix="none/set")


if __name__ == "__main__":
    unittest.main(verbosity=2)
