"""Hugging Face's folders in and out of pretrain_gpt: the model they describe, for every layout of ranks, to the byte."""
import filecmp
import json
import os
import subprocess
import unittest

import hf_llama
import torch
from pretraining import LIMIT, OVERLAPS, PROGRAM, PretrainTest

LOGITS = os.environ["HF_LOGITS"]
NOTHING = "--train-iters 0".split()
STEPS = "--seq-length 16 --micro-batch-size 1 --global-batch-size 8 --train-iters 2 --print-weight-hash".split()
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
CONFIGS = {
    "grouped": {},
    "own_keys": {"num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "scaled": {"rope_scaling": LLAMA3},
}
LAYOUTS = [  # config, ranks, flags
    ("grouped", 2, OVERLAPS),
    ("grouped", 3, ["--zero-stage", "3", "--overlap-grad-reduce", "--global-batch-size", "12"]),
    ("grouped", 4, "--tensor-model-parallel-size 2 --context-parallel-size 2 --use-distributed-optimizer".split()),
    ("tied", 4, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2".split()),
    ("own_keys", 2, "--tensor-model-parallel-size 2".split()),
]


class HfFolders(PretrainTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name="in", kind=torch.float32, files=1, **changes):
        hf_llama.make_folder(self.path(name), {**hf_llama.CONFIG, **changes}, kind, files)
        return self.path(name)

    def convert(self, *words, ranks=0):
        run = self.start(ranks, *words, model=NOTHING, data=())
        self.assertEqual(run.code, 0, run.text)
        return run

    def assert_same(self, a, b):
        self.assertEqual(sorted(os.listdir(a)), sorted(os.listdir(b)))
        same, different, strange = filecmp.cmpfiles(a, b, os.listdir(a), shallow=False)
        self.assertEqual((different, strange), ([], []))

    def assert_same_weights(self, a, b, kind=torch.float32):
        a, b = hf_llama.weights_of(a), hf_llama.weights_of(b)
        self.assertEqual(set(a), set(b))
        for name, value in a.items():
            self.assertTrue(torch.equal(value.to(kind), b[name]), name)

    def test_logits_are_those_of_a_plain_implementation(self):
        length = 24
        tokens = torch.stack([7 * torch.arange(length) + 1, 7 * torch.arange(length) + 4])
        tokens = tokens.remainder(hf_llama.CONFIG["vocab_size"])
        for name, changes in CONFIGS.items():
            folder = self.make(name, **changes)
            for word, kind, bound in [("f64", torch.float64, 1e-9), ("f32", torch.float32, 1e-4)]:
                with self.subTest(config=name, type=word):
                    out = self.path("logits")
                    done = subprocess.run([LOGITS, out, word, "--load-hf", folder, "--seq-length", str(length),
                                           *NOTHING], capture_output=True, text=True, timeout=LIMIT)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    with open(out, "rb") as file:
                        got = torch.frombuffer(bytearray(file.read()), dtype=torch.float64)
                    wanted = hf_llama.logits(folder, tokens, kind).double()
                    self.assertGreater(wanted.std().item(), 0.5)
                    self.assertLessEqual((got.view(wanted.shape) - wanted).abs().max().item(), bound)

    def test_what_goes_in_comes_out_for_every_layout_of_ranks(self):
        for name in ("grouped", "tied", "own_keys"):
            folder, once = self.make(name, files=3, **CONFIGS[name]), self.path(name + "_once")
            self.convert("--load-hf", folder, "--save-hf", once)
            self.assert_same_weights(folder, once)
        for name, ranks, flags in LAYOUTS:
            with self.subTest(config=name, ranks=ranks, flags=flags):
                again = self.path(f"{name}_again")  # one of before is replaced
                self.convert("--load-hf", self.path(name + "_once"), "--save-hf", again, *flags, ranks=ranks)
                self.assert_same(self.path(name + "_once"), again)

    def test_files_are_cut_by_size_and_other_types_are_converted(self):
        for kind in (torch.bfloat16, torch.float16):
            folder = self.make(str(kind), kind)
            whole, cut = self.path(f"{kind}_whole"), self.path(f"{kind}_cut")
            self.convert("--load-hf", folder, "--save-hf", whole)
            self.assert_same_weights(folder, whole)
            self.convert("--load-hf", whole, "--save-hf", cut, "--bf16", "--hf-shard-size", "20KB", ranks=2)
            self.assert_same_weights(whole, cut, torch.bfloat16)
            files = [name for name in os.listdir(cut) if name.endswith(".safetensors")]
            self.assertGreater(len(files), 2)
            with open(os.path.join(cut, "config.json")) as file:
                config = json.load(file)
            self.assertEqual((config["torch_dtype"], config["custom"]), ("bfloat16", [1, {"kept": True}]))

    def test_training_goes_on_from_a_folder_alike_in_every_layout(self):
        folder = self.make()
        out = self.path("out")
        one = self.train(1, "--load-hf", folder, "--save-hf", out, "--save", self.path("saved"), model=STEPS)
        self.assertNotEqual(hf_llama.weights_of(folder)["lm_head.weight"][0, 0],
                            hf_llama.weights_of(out)["lm_head.weight"][0, 0])
        for ranks, flags in [(2, OVERLAPS), (2, "--tensor-model-parallel-size 2".split())]:
            other = self.train(ranks, "--load-hf", folder, *flags, model=STEPS)
            self.assert_close(other.losses, one.losses, 1e-5)
        made = self.path("made")  # of the checkpoint: the same folder
        self.convert("--load", self.path("saved"), "--load-hf", folder, "--save-hf", made, ranks=2)
        self.assert_same(out, made)
        with open(os.path.join(made, "tokenizer.json"), "w") as file:
            file.write("{}")
        self.convert("--load-hf", made, "--save-hf", made)  # in its own place, with what goes with it
        self.assertTrue(os.path.exists(os.path.join(made, "tokenizer.json")))
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith(".tmp")])

    def test_the_same_command_goes_on_from_its_checkpoint(self):
        words = ["--load-hf", self.make(), "--save", self.path("saved"), "--load", "latest"]
        undisturbed = self.train(1, *words, model=STEPS)
        again = self.start(1, *words, model=STEPS)
        self.assertIn("nothing left to do", again.out)
        self.assertEqual(undisturbed.hash, again.hash)

    def test_a_model_of_flags_alone_becomes_a_folder(self):
        flags = ("--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --num-layers 2 "
                 "--hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 48").split()
        out = self.path("out")
        self.convert(*flags, "--save-hf", out)
        with open(os.path.join(out, "config.json")) as file:
            config = json.load(file)
        self.assertEqual({name: list(value.shape) for name, value in hf_llama.weights_of(out).items()},
                         hf_llama.shapes_of(config))
        self.convert("--load-hf", out, "--save-hf", self.path("again"))
        self.assert_same(out, self.path("again"))

    def refusal(self, *words):
        done = subprocess.run([PROGRAM, *NOTHING, *words], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_what_the_model_cannot_be_is_refused_by_the_name_of_its_key(self):
        for changes, said in [({"model_type": "mistral"}, "model_type"),
                              ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type"),
                              ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope_scaling.type"),
                              ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_parameters.rope_type"),
                              ({"hidden_act": "gelu"}, "hidden_act"),
                              ({"attention_bias": True}, "attention_bias"),
                              ({"sliding_window": 128}, "sliding_window"),
                              ({"head_dim": 16}, "head_dim"),
                              ({"num_key_value_heads": 3}, "num_key_value_heads"),
                              ({"hidden_size": "wide"}, "hidden_size"),
                              ({"intermediate_size": None}, "intermediate_size"),
                              ({"quantization_config": {"bits": 4}}, "quantization_config"),
                              ({"architectures": ["LlamaForSequenceClassification"]}, "architectures")]:
            name = said + str(len(os.listdir(self.folder)))
            os.makedirs(self.path(name))
            with open(os.path.join(self.path(name), "config.json"), "w") as file:
                json.dump({**hf_llama.CONFIG, **changes}, file)
            said = self.refusal("--load-hf", self.path(name)).split("config.json")[1]
            self.assertIn(name.rstrip("0123456789"), said)

    def test_tensors_that_do_not_fit_are_refused_by_name(self):
        def change(weights):
            weights["model.layers.1.mlp.up_proj.weight"] = torch.zeros(48, 31)

        for name, spoil, said in [
                ("missing", lambda weights: weights.pop("model.norm.weight"), "'model.norm.weight' is missing"),
                ("surplus", lambda weights: weights.update(score=torch.zeros(2)), "'score' is none of the model's"),
                ("shape", change, "'model.layers.1.mlp.up_proj.weight' is [48, 31], not [48, 32]")]:
            folder = self.make(name)
            weights = hf_llama.weights_of(folder)
            spoil(weights)
            hf_llama.write_file(os.path.join(folder, "model.safetensors"), weights)
            self.assertIn(said, self.refusal("--load-hf", folder))
        folder = self.make("torn", files=2)
        os.truncate(os.path.join(folder, "model-00002-of-00002.safetensors"), 5000)
        self.assertIn("model-00002-of-00002.safetensors", self.refusal("--load-hf", folder))
        os.remove(os.path.join(folder, "model.safetensors.index.json"))
        self.assertIn("has neither model.safetensors nor", self.refusal("--load-hf", folder))

    def test_flags_and_folders_that_contradict_each_other_are_refused(self):
        folder = self.make()
        self.assertIn("--num-layers: 3 is not what", self.refusal("--load-hf", folder, "--num-layers", "3"))
        self.assertIn("--seq-length: 65", self.refusal("--load-hf", folder, "--seq-length", "65"))
        self.assertIn("--save-hf writes Llamas", self.refusal("--save-hf", self.path("out")))
        os.makedirs(self.path("mine"))
        with open(os.path.join(self.path("mine"), "thesis.tex"), "w") as file:
            file.write("all of it")
        self.assertIn("'thesis.tex' is in it",
                      self.refusal("--load-hf", folder, "--save-hf", self.path("mine")))
        self.assertEqual(os.listdir(self.path("mine")), ["thesis.tex"])


if __name__ == "__main__":
    unittest.main()
