# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""What can be said of gpu.py's parts without a GPU: the made-up numbers are samebit's, and both rivals compute the layer.

    samebit synth /tmp/small --shape mid --inputs /tmp/small.safetensors --tokens 64
    TRITON_INTERPRET=1 python bench/rivals/check_cpu.py /tmp/small /tmp/small.safetensors
"""

import dataclasses
import json
import pathlib
import sys

import safetensors
import torch

import gpu
import made_up
from triton_experts import Tile

ROLES = {"gate_proj": made_up.GATE, "up_proj": made_up.UP, "down_proj": made_up.DOWN}


def main():
    folder, inputs = map(pathlib.Path, sys.argv[1:])
    check_bits(folder, inputs)
    s = made_up.SHAPES["small"]
    w = made_up.weights(s, "cpu")
    for f in dataclasses.fields(w):
        getattr(w, f.name).mul_(8)  # louder than a model's, so that a small shape's experts do not all but vanish
    gpu.check_block(gpu.block(s, w, "cpu"), s, w, "cpu", 24)
    wide = made_up.Weights(*(getattr(w, f.name).float() for f in dataclasses.fields(w)))  # Triton's interpreter knows no BF16 products
    for tile in Tile(16, 32, 64, 1, 4, 4), Tile(16, 64, 32, 4, 4, 4), Tile(32, 128, 64, 3, 4, 4):
        gpu.check_experts(s, wide, "cpu", tile, 40)


def check_bits(folder, inputs):
    """Every matrix of a checkpoint's layer 0, and the tokens beside it."""
    index, checked = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"], 0
    for name in index:
        if not name.startswith("model.layers.0."):
            continue
        *_, owner, matrix, _ = name.split(".")
        role, expert = ROLES.get(matrix, made_up.ROUTER if matrix == "gate" else made_up.SHARED_GATE), 0
        if owner == "shared_expert":
            role += made_up.SHARED
        elif owner != "mlp":
            expert = int(owner)
        same(folder / index[name], name, role << 24 | expert, made_up.WEIGHT_SCALE)
        checked += 1
    same(inputs, "x", made_up.TOKENS << 24, made_up.TOKEN_SCALE)
    same(inputs, "dy", made_up.UPSTREAM << 24, made_up.TOKEN_SCALE)
    print(f"# {checked} matrices, x and dy are samebit's")


def same(path, name, stream, scale):
    with safetensors.safe_open(path, "pt") as f:
        need = f.get_tensor(name)
    have = torch.empty_like(need)
    made_up.fill(have, 0, stream, scale)
    assert torch.equal(have.view(torch.int16), need.view(torch.int16)), f"{name} is not samebit's"


if __name__ == "__main__":
    main()
