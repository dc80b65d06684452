#!/usr/bin/env python3
"""Lists a safetensors file by the format's own description, with the standard library alone.

read_safetensors.py FILE    prints the metadata by name, then each tensor as its bytes lie: name,
                            dtype and shape, SHA-256 of its bytes. Of an index (….index.json) the same for
                            each file that it names, which must hold what the index says it does
"""
import hashlib
import json
import math
import pathlib
import struct
import sys

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
         "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def main(path):
    if not path.endswith(".index.json"):
        return list_file(path)
    index = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    found, size = {}, 0
    for name in sorted(set(index["weight_map"].values())):
        for tensor, count in list_file(str(pathlib.Path(path).with_name(name))).items():
            found[tensor] = name
            size += count
    if found != index["weight_map"] or size != index["metadata"]["total_size"]:
        sys.exit(f"{path}: does not say where the tensors are")


def list_file(path):
    """Bytes of each tensor, by name."""
    with open(path, "rb") as file:
        contents = file.read()
    (length,) = struct.unpack("<Q", contents[:8])
    header = json.loads(contents[8:8 + length].decode("utf-8"))
    data = contents[8 + length:]
    for key, value in sorted(header.pop("__metadata__", {}).items()):
        print(key, value)
    end = 0
    sizes = {}
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = tensor["data_offsets"]
        if first != end or last - first != math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]:
            sys.exit(f"{path}: {name} is not where it should be, or not of its size")
        end = last
        sizes[name] = last - first
        shape = "".join(f" {extent}" for extent in tensor["shape"])
        digest = hashlib.sha256(data[first:last]).hexdigest()
        print(f"{name}\t{tensor['dtype']}{shape}\t{digest}")
    if end != len(data):
        sys.exit(f"{path}: {len(data) - end} bytes belong to no tensor")
    return sizes


if __name__ == "__main__":
    main(sys.argv[1])
