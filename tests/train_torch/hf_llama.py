"""Hugging Face's folder of a Llama, written and read in a few lines, and the model itself as its paper has it: for
comparison with pretrain_gpt, of which nothing is used here."""
import json
import math
import os
import struct

import torch

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
WORDS = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 259,
          "rope_theta": 5000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
          "hidden_act": "silu", "max_position_embeddings": 64, "torch_dtype": "float32", "custom": [1, {"kept": True}]}


def bytes_of(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.element_size() == 2 else torch.int32).numpy().tobytes()


def write_file(path, tensors):
    names = {kind: word for word, kind in TYPES.items()}
    header, end = {}, 0
    for name, tensor in tensors.items():
        first, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(bytes_of(tensor))


def read_file(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=TYPES[entry["dtype"]], offset=entry["data_offsets"][0],
                                   count=math.prod(entry["shape"])).view(entry["shape"])
            for name, entry in header.items()}


def weights_of(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_file(os.path.join(folder, "model.safetensors"))
    with open(index) as file:
        places = json.load(file)["weight_map"]
    weights = {}
    for name in sorted(set(places.values())):
        weights.update(read_file(os.path.join(folder, name)))
    assert set(weights) == set(places)
    return weights


def shapes_of(config):
    width, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = width // config["num_attention_heads"]
    narrow = config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": [vocab, width]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        linear = {"self_attn.q_proj": [width, width], "self_attn.k_proj": [narrow, width],
                  "self_attn.v_proj": [narrow, width], "self_attn.o_proj": [width, width],
                  "mlp.gate_proj": [inner, width], "mlp.up_proj": [inner, width], "mlp.down_proj": [width, inner]}
        for name, shape in linear.items():
            shapes[f"{layer}{name}.weight"] = shape
            if config.get("attention_bias"):
                shapes[f"{layer}{name}.bias"] = shape[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{name}.weight"] = [width]
    shapes["model.norm.weight"] = [width]
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [vocab, width]
    return shapes


def make_folder(folder, config, kind=torch.float32, files=1, seed=1):
    """A folder of random weights, large enough that attention and gates count."""
    torch.manual_seed(seed)
    weights = {name: (torch.randn(shape) * (0.25 if len(shape) == 2 else 0.5) + (len(shape) == 1)).to(kind)
               for name, shape in shapes_of(config).items()}
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**config, "torch_dtype": WORDS[kind]}, file)
    if files == 1:
        write_file(os.path.join(folder, "model.safetensors"), weights)
        return weights
    places = {}
    for i in range(files):
        name = f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = dict(list(weights.items())[i::files])
        write_file(os.path.join(folder, name), part)
        places.update({tensor: name for tensor in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": 0}, "weight_map": places}, file)
    return weights


def turns_of(config, head):
    """Radians that each pair of features turns by from one position to the next."""
    turns = [config["rope_theta"] ** (-2 * i / head) for i in range(head // 2)]
    scaling = config.get("rope_scaling")
    if not scaling:
        return turns
    slowed, low, high = [], scaling["low_freq_factor"], scaling["high_freq_factor"]
    for turn in turns:
        length = 2 * math.pi / turn
        if length > scaling["original_max_position_embeddings"] / low:
            slowed.append(turn / scaling["factor"])
        elif length < scaling["original_max_position_embeddings"] / high:
            slowed.append(turn)
        else:
            smooth = (scaling["original_max_position_embeddings"] / length - low) / (high - low)
            slowed.append((1 - smooth) * turn / scaling["factor"] + smooth * turn)
    return slowed


def logits(folder, tokens, kind):
    """[b, s] -> [b, s, v]"""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    weights = {name: value.to(kind) for name, value in weights_of(folder).items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    head = config["hidden_size"] // heads
    length = tokens.shape[1]
    angles = torch.outer(torch.arange(length, dtype=torch.float64),
                         torch.tensor(turns_of(config, head), dtype=torch.float64))
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)

    def linear(x, name):
        bias = weights.get(name + ".bias")
        return x @ weights[name + ".weight"].T + (0 if bias is None else bias)

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + config["rms_norm_eps"]).sqrt() * weights[name + ".weight"]

    def turned(x):  # [s, d]
        first, second = x[:, :head // 2], x[:, head // 2:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def attention(x, layer):  # [s, h]
        query, key, value = (linear(x, f"{layer}self_attn.{part}_proj") for part in "qkv")
        mixed = []
        for i in range(heads):
            group = i // (heads // groups)
            mine, theirs = slice(i * head, (i + 1) * head), slice(group * head, (group + 1) * head)
            scores = turned(query[:, mine]) @ turned(key[:, theirs]).T / math.sqrt(head)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
            mixed.append(scores.softmax(-1) @ value[:, theirs])
        return linear(torch.cat(mixed, -1), layer + "self_attn.o_proj")

    def mlp(x, layer):
        gate = linear(x, layer + "mlp.gate_proj")
        return linear(gate * gate.sigmoid() * linear(x, layer + "mlp.up_proj"), layer + "mlp.down_proj")

    made = []
    for row in tokens:
        x = weights["model.embed_tokens.weight"][row]
        for i in range(config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            x = x + attention(norm(x, layer + "input_layernorm"), layer)
            x = x + mlp(norm(x, layer + "post_attention_layernorm"), layer)
        tied = config["tie_word_embeddings"]
        made.append(norm(x, "model.norm") @ weights["model.embed_tokens.weight" if tied else "lm_head.weight"].T)
    return torch.stack(made)
