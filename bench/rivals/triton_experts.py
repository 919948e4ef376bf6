# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""The routed experts as engines run them in Triton: one product over all rows, sorted by expert and padded to whole tiles.

gate and up in one product; SwiGLU; down, each row times its route weight; the sum of a token's rows. What passes between is
BF16. The routes and the sort are given. The tiles are those that vLLM found fastest for E=512, N=512, H200, BF16.
"""

import dataclasses

import torch
import triton
import triton.language as tl


@dataclasses.dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    depth: int
    group: int  # tiles of rows that share a sweep over the columns
    warps: int
    stages: int


# By the number of tokens; the entry nearest to it counts.
TILES = {
    1: Tile(16, 32, 64, 1, 4, 4),
    2: Tile(16, 128, 64, 1, 4, 4),
    4: Tile(16, 128, 64, 1, 4, 3),
    8: Tile(16, 128, 64, 1, 4, 3),
    16: Tile(16, 128, 64, 1, 4, 4),
    24: Tile(16, 128, 128, 1, 8, 3),
    32: Tile(16, 128, 128, 64, 8, 3),
    48: Tile(16, 128, 128, 1, 8, 3),
    64: Tile(16, 128, 128, 64, 4, 3),
    96: Tile(16, 64, 128, 1, 4, 3),
    128: Tile(16, 128, 128, 64, 8, 3),
    256: Tile(16, 128, 128, 1, 8, 3),
    512: Tile(16, 256, 128, 1, 8, 2),
    1024: Tile(32, 128, 64, 1, 4, 3),
    1536: Tile(64, 128, 64, 1, 4, 3),
    2048: Tile(64, 128, 64, 1, 4, 3),
    3072: Tile(64, 128, 64, 1, 4, 3),
    4096: Tile(128, 256, 64, 1, 8, 4),
}


def tile_for(tokens):
    return TILES[min(TILES, key=lambda n: abs(n - tokens))]


@dataclasses.dataclass
class Plan:
    """Where the rows are. A slot is one of a token's K routes: token*K + k."""

    weights: torch.Tensor  # [T,K] FP32
    slots: torch.Tensor  # [tiles*tile.rows] the row's slot; T*K for a row of padding
    experts: torch.Tensor  # [tiles]
    tile: Tile


def plan(ids, weights, experts, tile):
    """Sorts routes [T,K] by expert, each expert's rows padded to whole tiles."""
    sorted_ids, slots = ids.flatten().sort(stable=True)
    counts = torch.bincount(sorted_ids, minlength=experts)
    tiles = (counts + tile.rows - 1) // tile.rows
    shift = (tiles.cumsum(0) - tiles) * tile.rows - (counts.cumsum(0) - counts)  # of an expert's rows, by the padding before them
    place = torch.arange(len(slots), device=ids.device) + shift[sorted_ids]
    padded = torch.full((int(tiles.sum()) * tile.rows,), len(slots), dtype=torch.int32, device=ids.device)
    padded[place] = slots.int()
    owners = torch.repeat_interleave(torch.arange(experts, dtype=torch.int32, device=ids.device), tiles)
    return Plan(weights.float().contiguous(), padded, owners, tile)


def experts(x, gate_up, down, p):
    """y [T,H] of tokens x [T,H], from the routed experts alone."""
    tokens, hidden = x.shape
    top, width = p.weights.shape[1], down.shape[2]
    slots = tokens * top
    both = x.new_empty(slots, 2 * width)
    product(x, gate_up, both, p, shared_by=top, weigh=False)
    h = x.new_empty(slots, width)
    swiglu[(slots,)](both, h, WIDTH=width, BLOCK=triton.next_power_of_2(width))
    rows = x.new_empty(slots, hidden)
    product(h, down, rows, p, shared_by=1, weigh=True)
    y = torch.empty_like(x)
    block = min(1024, triton.next_power_of_2(hidden))
    add_rows[(tokens, triton.cdiv(hidden, block))](rows, y, TOP=top, HIDDEN=hidden, BLOCK=block)
    return y


def product(a, w, out, p, shared_by, weigh):
    """out[slot] = a[slot/shared_by] times the slot's expert's matrix in w [E,N,K]."""
    n, k = w.shape[1:]
    t = p.tile
    assert n % t.columns == 0 and k % t.depth == 0, (n, k, t)
    grouped_product[(len(p.experts) * (n // t.columns),)](
        a, w, out, p.weights, p.slots, p.experts, len(out), len(p.experts), N=n, K=k, SHARED_BY=shared_by, WEIGH=weigh,
        ROWS=t.rows, COLUMNS=t.columns, DEPTH=t.depth, GROUP=t.group, num_warps=t.warps, num_stages=t.stages)


@triton.jit(do_not_specialize=["slots", "tiles"])  # one program, whatever the routes are
def grouped_product(a, w, out, weights, slot_of, expert_of, slots, tiles, N: tl.constexpr, K: tl.constexpr, SHARED_BY: tl.constexpr,
                    WEIGH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    # Which tile: GROUP tiles of rows go over the columns together.
    across: tl.constexpr = N // COLUMNS
    at = tl.program_id(0)
    first = at // (GROUP * across) * GROUP
    high = min(tiles - first, GROUP)
    within = at % (GROUP * across)
    row, column = first + within % high, within // high

    slot = tl.load(slot_of + row * ROWS + tl.arange(0, ROWS))
    live = slot < slots
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    expert = tl.load(expert_of + row).to(tl.int64)
    left = a + (slot // SHARED_BY).to(tl.int64)[:, None] * K + depth[None, :]
    right = w + expert * (N * K) + columns[None, :] * K + depth[:, None]
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(0, K, DEPTH):
        sums = tl.dot(tl.load(left, mask=live[:, None], other=0.0), tl.load(right), sums)
        left += DEPTH
        right += DEPTH
    if WEIGH:
        sums *= tl.load(weights + slot, mask=live, other=0.0)[:, None]
    to = out + slot.to(tl.int64)[:, None] * N + columns[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=live[:, None])


@triton.jit
def swiglu(both, h, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    slot = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    g = tl.load(both + slot * (2 * WIDTH) + i, mask=i < WIDTH, other=0.0).to(tl.float32)
    u = tl.load(both + slot * (2 * WIDTH) + WIDTH + i, mask=i < WIDTH, other=0.0).to(tl.float32)
    tl.store(h + slot * WIDTH + i, (g / (1 + tl.exp(-g)) * u).to(h.dtype.element_ty), mask=i < WIDTH)


@triton.jit
def add_rows(rows, y, TOP: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(TOP):
        total += tl.load(rows + (token * TOP + k) * HIDDEN + j, mask=j < HIDDEN, other=0.0).to(tl.float32)
    tl.store(y + token * HIDDEN + j, total.to(y.dtype.element_ty), mask=j < HIDDEN)
