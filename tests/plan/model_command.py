#!/usr/bin/env python3
"""tutti plan model and plan search as people call them: figures, JSON, and one-line errors.

model_command.py TUTTI
"""
import json
import subprocess
import sys

TUTTI = sys.argv[1]
LLAMA = ("--preset llama2-70b --dp 8 --tp 8 --pp 4 --zero 1 --seq 4096 --micro-batch 1 "
         "--global-batch 1024 --cluster h100-ib400")
failures = []


def tutti(words):
    return subprocess.run([TUTTI, "plan", *words.split()], capture_output=True, text=True,
                          timeout=60)


def expect(truth, text):
    if not truth:
        failures.append(text)


def answer(words):
    done = tutti(words + " --json")
    expect(done.returncode == 0, f"{words}: exit code {done.returncode}, {done.stderr}")
    return json.loads(done.stdout)


def figures():
    plan = answer("model " + LLAMA)
    expect(plan["parameters"]["total"] == 68976648192, "llama2-70b is not 68.98 B")
    expect(plan["layout"]["ranks"] == 256, "256 ranks")
    step = plan["step"]
    parts = sum(step[f"{part}_s"] for part in ("compute", "tensor", "context", "pipeline", "bubble",
                                               "gradients", "weights", "update"))
    expect(abs(parts - step["step_s"]) < 1e-9 * parts, "the parts do not add up to the step")
    kinds = {row["kind"] for row in plan["traffic"]}
    expect(kinds == {"tensor", "pipeline", "gradients", "weights"}, "kinds of traffic")
    memory = plan["memory"]
    expect(abs(memory["weights_bytes"] * 2 - memory["gradients_bytes"]) < 1,
           "bf16 weights, f32 gradients")
    slower = answer("model " + LLAMA + " --no-overlap-param-gather")
    expect(slower["step"]["step_s"] > step["step_s"], "overlap of the gathers gains nothing")
    gain = slower["step"]["step_s"] / step["step_s"] - 1
    expect(abs(gain - plan["param_gather_overlap"]["gain"]) < 1e-12, "the gain is not the gain")


def text():
    done = tutti("model " + LLAMA + " --explain")
    for word in ("68.98 B", "MindSpeed reports 3.4 %", "verdict: ", "optimizer", "break-even",
                 "bucket 0", "MFU"):
        expect(word in done.stdout, f"plan model does not say {word!r}")
    own = tutti("model --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 100 --glu "
                "--tied --max-positions 32 --bias --seq 32")
    # 2·(64·(64 + 2·32) + 64·64 + 3·64·96 + 4·64 + (128 + 64 + 192 + 64)) + 100·64 + 32·64 + 128
    expect("(71424)" in own.stdout, "a model of one's own: " + own.stdout + own.stderr)
    help_text = tutti("model --help").stdout
    expect("Examples:" in help_text and "--preset llama2-70b" in help_text, "help, no example")


def search():
    found = answer("search --preset llama2-70b --gpus 512 --cluster h100-ib400 --top 7")
    times = [row["step_s"] for row in found["best"]]
    expect(len(times) == 7 and times == sorted(times), "seven, ranked")
    expect(found["planned"] == found["fitting"] + sum(found["too_large_by"].values()), "counts")
    expect(all(row["layout"]["ranks"] == 512 for row in found["best"]), "512 ranks")
    done = tutti("search --preset llama2-70b --gpus 512 --cluster h100-ib400")
    for word in ("do not fit into memory", "binds", "verdict"):
        expect(word in done.stdout, f"plan search does not say {word!r}")
    none = tutti("search --preset gpt3-175b --gpus 8")
    expect(none.returncode == 1 and "nothing fits" in none.stdout, "175B on 8 ranks")


ERRORS = [
    ("model --preset llama9", "llama2-70b"),
    ("model", "--preset"),
    ("model --preset llama2-70b --tp 3", "heads"),
    ("model --preset llama2-70b --tp 16", "kv_heads"),
    ("model --preset llama2-70b --pp 3", "layers"),
    ("model --preset llama2-70b --dp 8 --global-batch 12", "global_batch 12"),
    ("model --preset llama2-70b --zero 5", "zero"),
    ("model --preset llama2-70b --dp 0", "dp"),
    ("model --preset llama2-70b --recompute some", "selective"),
    ("model --preset llama2-70b --precision fp4", "bf16"),
    ("model --preset llama2-70b --efficiency 3", "efficiency"),
    ("model --preset llama2-70b --cluster nowhere", "h100-ib400"),
    ("model --preset llama2-70b --cluster ./no-such-file.json", "no-such-file.json"),
    ("model --preset gpt2-small --seq 4096", "1024 positions"),
    ("model --preset gpt2-small --dp 100000 --cluster summit", "27648"),
    ("model --layers 2 --hidden 64 --heads 4 --kv-heads 3 --vocab 10", "kv_heads 3"),
    ("model --layers 2 --hidden 64 --heads 5 --vocab 10", "heads 5"),
    ("search --preset llama2-7b", "--gpus"),
    ("search --preset llama2-7b --gpus 0", "--gpus: 0 lies outside 1"),
    ("search --preset llama2-7b --gpus 8 --top 0", "--top"),
]


def errors():
    for words, names in ERRORS:
        done = tutti(words)
        said = done.stderr.strip()
        expect(done.returncode == 2, f"{words}: exit code {done.returncode}")
        expect(said.count("\n") == 0 and names in said, f"{words}: said {said!r}")
        expect(done.stdout == "", f"{words}: printed {done.stdout!r}")


for check in (figures, text, search, errors):
    check()
print("\n".join(failures) or "nothing to complain about")
sys.exit(1 if failures else 0)
