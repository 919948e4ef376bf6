# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""The layer in float64, straight from its definition: what tells whether a rival computes the same layer."""

import torch

BOUND = 1e-2  # relative L2; BF16 between the stages costs 3e-3 to 6e-3


def route(x, router, top):
    """ids and weights [T,K] of tokens x, the weights a softmax over the selected logits; in the type of x."""
    logits, ids = (x @ router.to(x.dtype).T).topk(top)
    return ids, logits.softmax(-1)


def layer(x, w, ids, shared=True):
    """y [T,H] in float64 of tokens x [T,H] in float64, over the routes ids [T,K]; without the shared expert where told."""
    weights = (x @ w.router.double().T).gather(1, ids).softmax(-1)
    y = torch.zeros_like(x)
    for e in ids.unique():
        token, k = (ids == e).nonzero(as_tuple=True)
        y = y.index_add(0, token, expert(x[token], w.gate_up[e], w.down[e]) * weights[token, k, None])
    if shared:
        y = y + (x @ w.shared_gate.double().T).sigmoid() * expert(x, w.shared_gate_up, w.shared_down)
    return y


def expert(x, gate_up, down):
    gate, up = (x @ gate_up.double().T).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ down.double().T


def check(name, what, tokens, have, need):
    """Prints how far have, the last of so many tokens, is from need, and fails where it is far."""
    off = have.double() - need
    relative = (off.norm() / need.norm()).item()
    print(f"# {name}: {what} of the last {len(have)} of {tokens} tokens differs from float64 by {relative:.2e} (relative L2),",
          f"{off.abs().max():.2e} at most", flush=True)
    assert relative < BOUND, f"{name}: {what} is another layer's: found {relative}, need less than {BOUND}"
