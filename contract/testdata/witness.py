# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0
"""A second witness of the samebit contract, written from the text of its rules and from no other code.

    python3 witness.py vectors tc16-h200.safetensors
    python3 witness.py layer CHECKPOINT_DIR LAYER IO.safetensors EXPECTED.safetensors
    python3 witness.py golden CASES.json

vectors recomputes the hardware results of R1. layer runs one mixture-of-experts layer, forward and backward, on x and
dy of IO and compares every tensor of EXPECTED. golden recomputes small cases, one operation each. Comparison is by
bits; the exit status is 0 only if all are equal.

It needs Python 3 and numpy, and uses integers only: an FP32 or BF16 number here is its bit pattern in an int64
array, and every operation below is integer arithmetic on sign, exponent and mantissa. Nothing depends on the FPU,
on numpy's float loops or on their order of summation. R0 to R13 are the rules of the contract.
"""

import json
import os
import struct
import sys
from fractions import Fraction

import numpy as np

# ---------------------------------------------------------------------------------------------------------------
# R0: FP32 on bit patterns. Subnormals are kept, rounding is to nearest even, every NaN comes out as 0x7FFFFFFF.

SIGN, MAGNITUDE, INF, NAN, ONE = 0x80000000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF, 0x3F800000
BF16_NAN = 0x7FC0


def bit_length(v):
    """Number of bits of v, 0 <= v < 2^63."""
    n = np.zeros_like(v)
    for step in (32, 16, 8, 4, 2, 1):
        high = (v >> step) != 0
        n = n + high * step
        v = np.where(high, v >> step, v)
    return n + v


def split(f):
    """sign, exponent of the last bit, integer mantissa: |f| = mantissa * 2^exponent for a finite f."""
    biased = (f >> 23) & 0xFF
    return f >> 31, np.maximum(biased, 1) - 150, (f & 0x7FFFFF) | ((biased > 0) * 0x800000)


def pack(sign, mantissa, exponent, nearest=True):
    """mantissa * 2^exponent, 0 <= mantissa < 2^62, as FP32: rounded to nearest even, or toward zero."""
    last = np.maximum(exponent + bit_length(mantissa) - 24, -149)  # exponent of the result's last bit
    right = np.clip(last - exponent, 0, 63)
    left = np.clip(exponent - last, 0, 63)
    kept = mantissa >> right
    if nearest:
        rest = mantissa - (kept << right)
        half = np.left_shift(1, np.maximum(right - 1, 0))
        kept = kept + ((rest > half) | ((rest == half) & (kept & 1 != 0)))
    bits = ((last + 149) << 23) + (kept << left)  # the implicit bit, where there is one, adds 1 to the exponent field
    bits = np.where(mantissa == 0, 0, np.minimum(bits, INF))
    return bits | (sign << 31)


def is_nan(f):
    return (f & MAGNITUDE) > INF


def is_inf(f):
    return (f & MAGNITUDE) == INF


def is_finite(f):
    return (f & MAGNITUDE) < INF


def canonical(f):
    return np.where(is_nan(f), NAN, f)


def negate(f):
    return f ^ SIGN


def add(a, b):
    a, b = np.broadcast_arrays(a, b)
    swap = (a & MAGNITUDE) < (b & MAGNITUDE)
    a, b = np.where(swap, b, a), np.where(swap, a, b)  # now |a| >= |b|
    sa, ea, ma = split(a)
    sb, eb, mb = split(b)
    shift = np.minimum(ea - eb, 36)
    mb = np.where(ea - eb > 36, mb != 0, mb)  # b is far below a's last bit: only that it is there matters
    total = (ma << shift) + np.where(sa == sb, mb, -mb)
    sign = np.where(total == 0, sa & sb, sa)  # x - x = +0, -0 + -0 = -0
    sum_ = np.where(is_inf(a), a, pack(sign, total, ea - shift))
    return np.where(is_nan(a) | is_nan(b) | (is_inf(a) & is_inf(b) & (sa != sb)), NAN, sum_)


def sub(a, b):
    return add(a, negate(b))


def mul(a, b):
    a, b = np.broadcast_arrays(a, b)
    sa, ea, ma = split(a)
    sb, eb, mb = split(b)
    sign = sa ^ sb
    infinite = is_inf(a) | is_inf(b)
    product = np.where(infinite, INF | (sign << 31), pack(sign, ma * mb, ea + eb))
    return np.where(is_nan(a) | is_nan(b) | (infinite & ((ma == 0) | (mb == 0))), NAN, product)


def div(a, b):
    a, b = np.broadcast_arrays(a, b)
    sa, ea, ma = split(a)
    sb, eb, mb = split(b)
    sign = sa ^ sb
    na, nb = 24 - bit_length(ma), 24 - bit_length(mb)  # bring subnormals up to 24 bits
    ma, mb = ma << na, np.where(mb == 0, 1, mb << nb)
    quotient = (ma << 37) // mb
    quotient = (quotient << 1) | (quotient * mb != ma << 37)  # the last bit is sticky
    ratio = pack(sign, quotient, (ea - na) - (eb - nb) - 38)
    zero_a, zero_b = (a & MAGNITUDE) == 0, (b & MAGNITUDE) == 0
    ratio = np.where(is_inf(a) | zero_b, INF | (sign << 31), ratio)
    ratio = np.where(is_inf(b), sign << 31, ratio)
    invalid = is_nan(a) | is_nan(b) | (is_inf(a) & is_inf(b)) | (zero_a & zero_b)
    return np.where(invalid, NAN, ratio)


def bf16(f):
    """FP32 to BF16, nearest even, NaN to 0x7FC0."""
    return np.where(is_nan(f), BF16_NAN, (f + 0x7FFF + ((f >> 16) & 1)) >> 16)


def fp32(b):
    """BF16 to FP32, exact."""
    return b << 16


def order(f):
    """An integer that sorts as the number does; -0 and +0 are equal."""
    return np.where(f & SIGN != 0, -(f & MAGNITUDE), f)


def from_order(key):
    return np.where(key < 0, -key | SIGN, key)


def constant(decimal):
    """The FP32 number nearest to a decimal text, in exact rational arithmetic."""
    exact = abs(Fraction(decimal)) * 2**160
    excess = max(int(exact).bit_length() - 61, 0)
    mantissa = int(exact) >> excess
    sticky = (mantissa << excess) != exact
    return int(pack(np.int64(decimal.startswith("-")), np.int64(mantissa | sticky), np.int64(excess - 160)))


# ---------------------------------------------------------------------------------------------------------------
# R1: the tensor-core dot product.


def tc16(acc, a, b):
    """acc + sum of a[..., i]*b[..., i] over 16 terms as a Hopper tensor core does it. acc FP32, a and b BF16."""
    a, b = np.broadcast_arrays(fp32(a), fp32(b))
    sa, ea, ma = split(a)
    sb, eb, mb = split(b)
    sc, ec, mc = split(acc)
    sp, ep, mp = sa ^ sb, ea + eb + 46, (ma >> 16) * (mb >> 16)  # ep = e(a)+e(b), |a*b| = mp * 2^(ep-14)
    ec = ec + 23  # e(acc), |acc| = mc * 2^(ec-23)
    top = np.where(mp != 0, ep, -133).max(axis=-1)  # M
    top = np.maximum(top, np.where(mc != 0, ec, -133))

    # In units of 2^(M-25), cut toward zero.
    terms = (mp << 11) >> np.clip(top[..., None] - ep, 0, 62)
    c = (mc << 2) >> np.clip(top - ec, 0, 62)
    total = np.where(sp == 1, -terms, terms).sum(axis=-1) + np.where(sc == 1, -c, c)
    result = pack((total < 0).astype(np.int64), np.abs(total), top - 25, nearest=False)
    result = np.where(result == SIGN, 0, result)  # zero is +0

    nan_term = is_nan(a) | is_nan(b) | (is_inf(a) & (b & MAGNITUDE == 0)) | (is_inf(b) & (a & MAGNITUDE == 0))
    inf_term = is_inf(a) | is_inf(b)
    plus = (inf_term & (sp == 0)).any(axis=-1) | (acc == INF)
    minus = (inf_term & (sp == 1)).any(axis=-1) | (acc == INF | SIGN)
    result = np.where(plus, INF, np.where(minus, INF | SIGN, result))
    return np.where(nan_term.any(axis=-1) | is_nan(acc) | (plus & minus), NAN, result)


def chain(acc, a, b):
    """tc16 over the last axis in ascending groups of 16, the last one padded with zeros."""
    pad = -a.shape[-1] % 16
    a = np.concatenate([a, np.zeros(a.shape[:-1] + (pad,), np.int64)], axis=-1)
    b = np.concatenate([b, np.zeros(b.shape[:-1] + (pad,), np.int64)], axis=-1)
    for k in range(0, a.shape[-1], 16):
        acc = tc16(acc, a[..., k : k + 16], b[..., k : k + 16])
    return acc


def tcdot(a, b, segment=0):
    """Dot product over the last axis; leading axes broadcast. With segments: one chain each, added in order, RN."""
    zero = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), np.int64)
    if not segment:
        return chain(zero, a, b)
    return fold(zero, a, b, segment)


def fold(acc, a, b, segment=32):
    """R11: the stream is the last axis; every segment is a chain from +0, added into acc in ascending order, RN."""
    for k in range(0, a.shape[-1], segment):
        acc = add(acc, chain(np.zeros_like(acc), a[..., k : k + segment], b[..., k : k + segment]))
    return acc


def matmul(a, b, segment=0):
    """[m,k] times [n,k] -> FP32 [m,n]."""
    return tcdot(a[:, None, :], b[None, :, :], segment)


# ---------------------------------------------------------------------------------------------------------------
# R4: exp, sigmoid, tree.

LOG2E, LN2_HIGH, LN2_LOW = constant("1.44269504"), constant("0.693359375"), constant("-2.12194440e-4")
EXP_POLYNOMIAL = [
    constant("1.9875691500e-4"),
    constant("1.3981999507e-3"),
    constant("8.3334519073e-3"),
    constant("4.1665795894e-2"),
    constant("1.6666665459e-1"),
    constant("5.0000001201e-1"),
]
EXP_OVERFLOW, EXP_UNDERFLOW = constant("88.72283"), constant("-103.97208")


def rint(f):
    """FP32 to the nearest integer, ties to even, |f| < 2^23."""
    sign, exponent, mantissa = split(f)
    right = np.clip(-exponent, 1, 62)
    n = mantissa >> right
    rest, half = mantissa - (n << right), np.left_shift(1, right - 1)
    n = n + ((rest > half) | ((rest == half) & (n & 1 != 0)))
    return np.where(sign == 1, -n, n)


def integer(n):
    """A small integer as FP32."""
    return pack((n < 0).astype(np.int64), np.abs(n), np.zeros_like(n))


def power_of_two(k):
    return (k + 127) << 23


def exp(x):
    over, under = order(x) > order(EXP_OVERFLOW), order(x) < order(EXP_UNDERFLOW)
    inside = np.where(over | under | is_nan(x), 0, x)
    n = rint(mul(inside, LOG2E))
    r = sub(inside, mul(integer(n), LN2_HIGH))
    r = sub(r, mul(integer(n), LN2_LOW))
    p = np.broadcast_to(EXP_POLYNOMIAL[0], r.shape)
    for c in EXP_POLYNOMIAL[1:]:
        p = add(mul(p, r), c)
    p = add(add(mul(p, mul(r, r)), r), ONE)
    half = n >> 1  # floor(n/2)
    y = mul(mul(p, power_of_two(half)), power_of_two(n - half))
    return np.where(is_nan(x), NAN, np.where(over, INF, np.where(under, 0, y)))


def sigmoid(z):
    return div(np.int64(ONE), add(np.int64(ONE), exp(negate(z))))


def tree(v):
    """Sum over the last axis: adjacent pairs, level by level, an odd last one carried."""
    while v.shape[-1] > 1:
        even = v.shape[-1] // 2 * 2
        v = np.concatenate([add(v[..., 0:even:2], v[..., 1:even:2]), v[..., even:]], axis=-1)
    return canonical(v[..., 0])


# ---------------------------------------------------------------------------------------------------------------
# R3, R4, R13: selection and route weights. Leading axes are tokens.


def select(logits, k):
    """The k largest, equal ones by ascending id; a row with a non-finite logit is rejected: all -1."""
    ids = np.argsort(-order(logits), axis=-1, kind="stable")[..., :k]
    return np.where(is_finite(logits).all(axis=-1, keepdims=True), ids, -1)


def softmax(logits):
    largest = from_order(order(logits).max(axis=-1, keepdims=True))
    u = exp(sub(logits, largest))
    return div(u, tree(u)[..., None])


def route_weights(logits, ids, norm):
    """A row of ids -1 gets zeros."""
    selected = np.maximum(ids, 0)
    if norm:
        w = softmax(np.take_along_axis(logits, selected, axis=-1))
    else:
        w = np.take_along_axis(softmax(logits), selected, axis=-1)
    return np.where(ids < 0, 0, w)


# ---------------------------------------------------------------------------------------------------------------
# R6, R7: experts and combine.


def silu(g):
    return div(g, add(np.int64(ONE), exp(negate(g))))


def swiglu(g, u):
    return bf16(mul(silu(g), u))


def combine(rows, w, shared=None, scale=None):
    """rows BF16 [K, ...], w FP32 [K, ...] in slot order, then the shared row times its scale; BF16."""
    y = np.zeros(rows.shape[1:], np.int64)
    for row, weight in zip(rows, w):
        y = add(y, mul(fp32(row), weight))
    if shared is not None:
        y = add(y, fp32(shared) if scale is None else mul(fp32(shared), scale))
    return bf16(y)


# ---------------------------------------------------------------------------------------------------------------
# R8, R10: backward of the activation, gradient of the router.


def swiglu_backward(g, u, q, w):
    dh = mul(q, w)
    s = sigmoid(g)
    du = bf16(mul(dh, silu(g)))
    slope = mul(s, add(np.int64(ONE), mul(g, sub(np.int64(ONE), s))))
    return bf16(mul(mul(dh, u), slope)), du


def router_gradient(w, dw, ids, p, norm, experts):
    """dl [..., E] from the route weights, their gradients and, unless norm, the softmax p over all experts."""
    live = ids >= 0
    c = tree(mul(w, dw))[..., None]
    if norm:
        dl, selected = np.zeros(ids.shape[:-1] + (experts,), np.int64), w
    else:
        dl, selected = mul(p, sub(np.int64(0), c)), np.take_along_axis(p, np.maximum(ids, 0), axis=-1)
    np.put_along_axis(dl, np.maximum(ids, 0), mul(selected, sub(dw, c)), axis=-1)
    return np.where(live.all(axis=-1, keepdims=True), dl, 0)


# ---------------------------------------------------------------------------------------------------------------
# One layer.


class Expert:
    """One expert or the shared one: its weights, the rows it was given, what they became."""

    def __init__(self, gate, up, down):
        self.gate, self.up, self.down = gate, up, down

    def forward(self, x, tokens):
        """R6. tokens ascending; returns the rows, BF16 [n, H]."""
        self.x, self.tokens = x[tokens], tokens
        self.g, self.u = matmul(self.x, self.gate), matmul(self.x, self.up)
        self.h = swiglu(self.g, self.u)
        return bf16(matmul(self.h, self.down))

    def backward(self, dy, w):
        """R8, R9, R11 for the rows whose dy is not all zero: which they are, dw, rows of dx, the three gradients."""
        live = ((dy[self.tokens] & 0x7FFF) != 0).any(axis=-1)
        x, dy, w = self.x[live], dy[self.tokens][live], w[live][:, None]
        g, u, h = self.g[live], self.u[live], self.h[live]
        q = matmul(dy, self.down.T)
        dw = tree(mul(q, fp32(h)))
        dg, du = swiglu_backward(g, u, q, w)
        rows = bf16(matmul(np.concatenate([dg, du], axis=1), np.concatenate([self.gate, self.up]).T))
        grad_gate, grad_up, grad_down = (
            matmul(left.T, right.T, 32) for left, right in ((dg, x), (du, x), (dy, bf16(mul(fp32(h), w))))
        )
        return live, dw, rows, grad_gate, grad_up, grad_down


def layer(weights, x, dy, k, norm):
    """weights: router BF16 [E,H], experts, and shared with shared_gate BF16 [1,H], or None. x, dy BF16 [T,H]."""
    tokens, experts = len(x), len(weights["experts"])
    router, shared, shared_gate = weights["router"], weights["shared"], weights["shared_gate"]

    # Route: R2, R3, R4. A rejected token has ids -1 and takes part in nothing.
    logits = matmul(x, router, 128)
    ids = select(logits, k)
    if shared:
        z = matmul(x, shared_gate, 128)
        ids = np.where(is_finite(z), ids, -1)
        s = sigmoid(z[:, 0])
    good = ids[:, 0] >= 0
    w = route_weights(logits, ids, norm)

    # Experts and combine: R5, R6, R7.
    rows = np.zeros((k,) + x.shape, np.int64)
    routes = [np.nonzero(ids == e) for e in range(experts)]  # (tokens, slots), tokens ascending
    for expert, (t, slot) in zip(weights["experts"], routes):
        rows[slot, t] = expert.forward(x, t)
    everyone = np.nonzero(good)[0]
    if shared:
        shared_rows = np.zeros_like(x)
        shared_rows[everyone] = shared.forward(x, everyone)
        y = combine(rows, w.T[:, :, None], shared_rows, s[:, None])
    else:
        y = combine(rows, w.T[:, :, None])
    y = np.where(good[:, None], y, BF16_NAN)

    # Backward: R8 to R11. Experts are walked in ascending id, so each token's dx adds its rows in that order.
    dx, dw, grad = np.zeros_like(x), np.zeros_like(w), {}
    for e, (expert, (t, slot)) in enumerate(zip(weights["experts"], routes)):
        live, row_dw, row_dx, *grad["experts", e] = expert.backward(dy, w[t, slot])
        t, slot = t[live], slot[live]
        dw[t, slot] = row_dw
        dx[t] = add(dx[t], fp32(row_dx))
    if shared:
        live, row_dw, row_dx, *grad["shared",] = shared.backward(dy, s[everyone])
        t = everyone[live]
        dx[t] = add(dx[t], fp32(row_dx))
        dz = np.zeros_like(s)
        dz[t] = mul(row_dw, mul(s[t], sub(np.int64(ONE), s[t])))

    live = np.nonzero(good & ((dy & 0x7FFF) != 0).any(axis=-1))[0]
    dl = router_gradient(w, dw, ids, None if norm else softmax(logits), norm, experts)
    grad_router = np.zeros(router.shape, np.int64)
    for e in range(experts):
        t = live[(ids[live] == e).any(axis=-1)] if norm else live
        dx[t] = add(dx[t], mul(dl[t, e][:, None], fp32(router[e])))
        for i in t:
            grad_router[e] = add(grad_router[e], mul(dl[i, e], fp32(x[i])))
    if shared:
        dx[live] = add(dx[live], mul(dz[live][:, None], fp32(shared_gate[0])))
        grad_shared_gate = np.zeros(shared_gate.shape, np.int64)
        for i in live:
            grad_shared_gate[0] = add(grad_shared_gate[0], mul(dz[i], fp32(x[i])))
        grad["shared_gate",] = [grad_shared_gate]
    grad["router",] = [grad_router]
    return {"logits": logits, "topk_ids": ids, "topk_weights": w, "y": y, "dx": bf16(dx)}, grad


# ---------------------------------------------------------------------------------------------------------------
# Files.

INTEGER_TYPES = {"BF16": "<u2", "F32": "<u4", "I32": "<i4"}  # the bits, as integers


def read_safetensors(path, prefix=""):
    """name -> (dtype, int64 array of bit patterns), for the names with this prefix and a dtype known here."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if not name.startswith(prefix) or entry.get("dtype") not in INTEGER_TYPES:
            continue
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[8 + size + begin : 8 + size + end], INTEGER_TYPES[entry["dtype"]])
        tensors[name] = entry["dtype"], flat.astype(np.int64).reshape(entry["shape"])
    return tensors


# Names of one layer's tensors, after "model.layers.N.": block, then gate, up, down of an expert.
LAYOUTS = (("mlp", ("gate_proj", "up_proj", "down_proj")), ("block_sparse_moe", ("w1", "w3", "w2")))


def read_layer(folder, number):
    """The weights of one layer, routes a token, NormTopK, and the names under which its gradients go."""
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    prefix, tensors = f"model.layers.{number}.", {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model") and file.endswith(".safetensors"):
            tensors.update(read_safetensors(os.path.join(folder, file), prefix))
    block, parts = next((b, p) for b, p in LAYOUTS if f"{prefix}{b}.gate.weight" in tensors)

    def names(*key):
        if key[0] == "experts":
            return [f"{block}.experts.{key[1]}.{part}.weight" for part in parts]
        if key[0] == "shared":
            return [f"{block}.shared_expert.{part}.weight" for part in parts]
        return [f"{block}.shared_expert_gate.weight" if key[0] == "shared_gate" else f"{block}.gate.weight"]

    def get(*key):
        return [tensors[prefix + name][1] for name in names(*key)]

    (router,) = get("router")
    has_shared = prefix + names("shared_gate")[0] in tensors
    weights = {
        "router": router,
        "experts": [Expert(*get("experts", e)) for e in range(len(router))],
        "shared": Expert(*get("shared")) if has_shared else None,
        "shared_gate": get("shared_gate")[0] if has_shared else None,
    }
    norm = config.get("norm_topk_prob", config["model_type"] == "mixtral")
    return weights, config["num_experts_per_tok"], norm, names


# ---------------------------------------------------------------------------------------------------------------
# Commands. Each returns whether all was equal.


def difference(got, want, digits):
    """'equal', or the count of differences, the first index and both values."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    where = np.argwhere(got != want)
    if not len(where):
        return "equal"
    first = tuple(int(i) for i in where[0])
    mask = (1 << 4 * digits) - 1
    return (
        f"{len(where)} of {got.size} differ, first at {list(first)}: "
        f"0x{int(got[first]) & mask:0{digits}X}, expected 0x{int(want[first]) & mask:0{digits}X}"
    )


def run_vectors(path):
    tensors = read_safetensors(path)
    equal = total = 0
    for name in sorted(name[:-2] for name in tensors if name.endswith(".d")):
        a, b, c, want = (tensors[f"{name}.{part}"][1] for part in "abcd")
        got = chain(c, a[:, None, :], b[None, :, :])
        verdict = difference(got, want, 8)
        if verdict != "equal":
            print(f"{name}: {verdict}")
        equal, total = equal + int((got == want).sum()), total + want.size
    print(f"{equal} of {total} equal")
    return equal == total and total > 0


def run_layer(folder, number, io, expected):
    weights, k, norm, names = read_layer(folder, number)
    tensors = read_safetensors(io)
    got, grad = layer(weights, tensors["x"][1], tensors["dy"][1], k, norm)
    dtypes = {"topk_ids": "I32", "y": "BF16", "dx": "BF16"}
    got = {name: (dtypes.get(name, "F32"), value) for name, value in got.items()}
    for key, values in grad.items():
        got.update((f"grad.{name}", ("F32", value)) for name, value in zip(names(*key), values))

    want, good = read_safetensors(expected), True
    for name in list(want) + [name for name in got if name not in want]:
        if name not in got or name not in want:
            verdict = "not in EXPECTED" if name in got else "not computed here"
        elif got[name][0] != want[name][0]:
            verdict = f"dtype {got[name][0]}, expected {want[name][0]}"
        else:
            verdict = difference(got[name][1], want[name][1], 4 if got[name][0] == "BF16" else 8)
        good = good and verdict == "equal"
        print(f"{name}: {verdict}")
    print("all equal" if good else "NOT EQUAL")
    return good


def integers(value):
    """Hex texts, and lists of them, to integers; "" to None."""
    if isinstance(value, list):
        return np.array([integers(v) for v in value], np.int64)
    if isinstance(value, str):
        return np.int64(int(value, 16)) if value else None
    return value


def golden_router_gradient(v, want):
    return {"dl": router_gradient(v["w"], v["dw"], v["ids"], v["p"], v["norm"], len(want["dl"]))}


def golden_fold(v, want):
    return {"acc": canonical(fold(v["acc"], v["a"].reshape(-1), v["b"].reshape(-1)))}


def golden_combine(v, want):
    scale = None if v["z"] is None else sigmoid(v["z"])
    return {"y": combine(v["rows"], v["w"], v["shared"], scale)}


GOLDEN = {
    "tc16": lambda v, want: {"acc": tc16(v["acc"], v["a"], v["b"])},
    "tcdot": lambda v, want: {"d": tcdot(v["a"], v["b"], v["segment"])},
    "exp": lambda v, want: {"y": exp(v["x"])},
    "sigmoid": lambda v, want: {"y": sigmoid(v["x"])},
    "tree": lambda v, want: {"sum": tree(v["v"])},
    "round": lambda v, want: {"b": bf16(v["f"])},
    "swiglu": lambda v, want: {"h": swiglu(v["g"], v["u"])},
    "swiglu_backward": lambda v, want: dict(zip(("dg", "du"), swiglu_backward(v["g"], v["u"], v["q"], v["w"]))),
    "topk": lambda v, want: {"ids": select(v["logits"], v["k"])},
    "weights": lambda v, want: {"w": route_weights(v["logits"], v["ids"], v["norm"])},
    "combine": golden_combine,
    "router_gradient": golden_router_gradient,
    "fold": golden_fold,
}
BF16_FIELDS = {"b", "h", "dg", "du", "y"}


def run_golden(path):
    with open(path) as file:
        cases = json.load(file)
    equal = 0
    for number, case in enumerate(cases):
        want = {name: integers(value) for name, value in case["out"].items()}
        got = GOLDEN[case["op"]]({name: integers(value) for name, value in case["in"].items()}, want)
        faults = [f"fields {sorted(got)}, expected {sorted(want)}"] if set(got) != set(want) else []
        for name in sorted(set(got) & set(want)):
            bf16_field = name in BF16_FIELDS and case["op"] not in ("exp", "sigmoid")
            verdict = difference(np.asarray(got[name]), np.asarray(want[name]), 4 if bf16_field else 8)
            if verdict != "equal":
                faults.append(f"{name}: {verdict}")
        for fault in faults:
            print(f"case {number} ({case['op']}): {fault}")
        equal += not faults
    print(f"{equal} of {len(cases)} equal")
    return equal == len(cases) > 0


COMMANDS = {"vectors": (run_vectors, 1), "layer": (run_layer, 4), "golden": (run_golden, 1)}

if __name__ == "__main__":
    command, count = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if command is None or len(sys.argv) != 2 + count:
        sys.exit(__doc__)
    sys.exit(0 if command(*sys.argv[2:]) else 1)
