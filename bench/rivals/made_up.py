# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""The made-up weights and tokens of the benchmarks, bit for bit those of internal/testgen, on any device."""

import dataclasses

import torch

SEED = 1
WEIGHT_SCALE, TOKEN_SCALE = 13, 7
ROUTER, SHARED_GATE, GATE, UP, DOWN, SHARED = 1, 2, 3, 4, 5, 3  # roles; a shared expert's matrix is SHARED above
TOKENS, UPSTREAM = 16, 17

GOLDEN, ODD = 0x9E3779B97F4A7C15, 0x00FF00FF00FF00FF


@dataclasses.dataclass
class Shape:
    hidden: int
    experts: int
    top: int
    width: int  # of an expert, and of the shared one


SHAPES = {"qwen3-next": Shape(2048, 512, 10, 512), "small": Shape(256, 16, 4, 128)}


@dataclasses.dataclass
class Weights:
    router: torch.Tensor  # [E,H]
    gate_up: torch.Tensor  # [E,2I,H], gate first
    down: torch.Tensor  # [E,H,I]
    shared_gate_up: torch.Tensor  # [2I,H]
    shared_down: torch.Tensor  # [H,I]
    shared_gate: torch.Tensor  # [1,H]


def weights(s, device, seed=SEED):
    empty = lambda *shape: torch.empty(shape, dtype=torch.bfloat16, device=device)
    w = Weights(empty(s.experts, s.hidden), empty(s.experts, 2 * s.width, s.hidden), empty(s.experts, s.hidden, s.width),
                empty(2 * s.width, s.hidden), empty(s.hidden, s.width), empty(1, s.hidden))
    put = lambda to, role, expert=0: fill(to, seed, role << 24 | expert, WEIGHT_SCALE)
    put(w.router, ROUTER)
    put(w.shared_gate, SHARED_GATE)
    for e in range(s.experts):
        put(w.gate_up[e, :s.width], GATE, e)
        put(w.gate_up[e, s.width:], UP, e)
        put(w.down[e], DOWN, e)
    put(w.shared_gate_up[:s.width], GATE + SHARED)
    put(w.shared_gate_up[s.width:], UP + SHARED)
    put(w.shared_down, DOWN + SHARED)
    return w


def tokens(n, s, seed, device, role=TOKENS):
    """Tokens [n,H], or with role UPSTREAM gradients of their outputs."""
    x = torch.empty(n, s.hidden, dtype=torch.bfloat16, device=device)
    fill(x, seed, role << 24, TOKEN_SCALE)
    return x


def fill(to, seed, stream, scale):
    """Sets a contiguous tensor to the first values of a stream, two of them to a word of 64 bits."""
    key = scramble((seed + GOLDEN) % 2**64) ^ scramble((stream + 0xD1B54A32D192ED03) % 2**64)
    flat = to.view(-1)
    for begin in range(0, len(flat), 2**26):  # what is made on the way is 16 times as large
        part = flat[begin:begin + 2**26]
        words = torch.arange(begin // 2 + 1, begin // 2 + 1 + len(part) // 2, device=to.device)
        words = scramble_all(words * signed(GOLDEN) + signed(key))
        sums = (words & ODD) + (words >> 8 & ODD)
        sums += sums >> 16  # in the first and third place: of four bytes
        both = torch.stack((sums & 1023, sums >> 32 & 1023), -1).view(-1)
        part.copy_((both - 510).float() * 2.0**-scale)


def scramble(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def scramble_all(z):
    """scramble, of a tensor of 64-bit numbers; their shifts keep the sign, which has to go."""
    shifted = lambda z, n: z >> n & (1 << 64 - n) - 1
    z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def signed(v):
    return v - 2**64 if v >= 2**63 else v
