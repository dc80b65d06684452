"""hf_folders.py OUT FOLDER...: what the transformers library makes of folders that pretrain_gpt has written, beside the plain
model of tests/train_torch/hf_llama.py; each is saved again by the library under OUT, for pretrain_gpt to read."""
import json
import os
import sys

import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train_torch"))
import hf_llama


def compare(folder, out):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                    output_loading_info=True)
    print(folder, type(model).__name__, model.config.to_json_string(use_diff=False).replace("\n", " "))
    print("  loading:", {key: list(value) for key, value in info.items() if value})
    tokens = torch.stack([7 * torch.arange(24) + 1, 7 * torch.arange(24) + 4]).remainder(model.config.vocab_size)
    worst = {}
    for kind in (torch.float32, torch.float64):
        with torch.no_grad():
            theirs = model.to(kind)(tokens).logits
        worst[str(kind)] = (theirs - hf_llama.logits(folder, tokens, kind)).abs().max().item()
    print("  largest difference of logits:", worst, "of", theirs.abs().max().item())
    model.to(torch.float32).save_pretrained(os.path.join(out, os.path.basename(folder)))
    missing = any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return not missing and worst["torch.float32"] <= 1e-3


def main():
    out, folders = sys.argv[1], sys.argv[2:]
    print("transformers", transformers.__version__, "torch", torch.__version__)
    good = [compare(folder, out) for folder in folders]
    for name in sorted(os.listdir(out)):
        with open(os.path.join(out, name, "config.json")) as file:
            print(name, sorted(os.listdir(os.path.join(out, name))), json.load(file))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
