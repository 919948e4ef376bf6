# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""Times transformers' Qwen3-Next block on the CPU, as `samebit bench` times the layer: README.md has the commands.

The weights are those of a checkpoint that `samebit synth` wrote, the tokens those that it wrote beside it, in the same
windows: run i takes the i-th window of a pool of max(512, 4*tokens) tokens. Results are Go benchmark lines on standard output.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import sys
import time

import safetensors
import torch
import transformers
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextSparseMoeBlock

import lines

WARM_UP = 10  # a warm-up is one run at least, and this part of --time


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    config = transformers.Qwen3NextConfig(**json.loads((args.checkpoint / "config.json").read_text()))
    block = load(args.checkpoint, config)
    with safetensors.safe_open(args.inputs, "pt") as f:
        x, dy = f.get_tensor("x"), f.get_tensor("dy")
    lines.settings(threads=args.threads, torch=torch.__version__, transformers=transformers.__version__)
    for experts in args.experts:
        block.experts.config._experts_implementation = experts
        if args.check:
            check(experts, block, x, args.check)
        for backward in (p == "forward+backward" for p in args.passes):
            for tokens in args.tokens:
                measure(args, block, experts, x, dy, tokens, backward)


def arguments():
    words = lambda text: text.split(",")
    numbers = lambda text: [int(n) for n in text.split(",")]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint", type=pathlib.Path, help="folder that samebit synth wrote; its layer 0 is run")
    p.add_argument("inputs", type=pathlib.Path, help="x and dy of samebit synth --inputs")
    p.add_argument("--shape", default="qwen3-next", help="the shape's name in the results")
    p.add_argument("--experts", type=words, default=["eager", "grouped_mm"], help="transformers' ways to run experts")
    p.add_argument("--passes", type=words, default=["forward", "forward+backward"])
    p.add_argument("--tokens", type=numbers, default=[1, 8, 64, 256, 1024])
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--time", type=float, default=1.0, help="seconds to run each case, at least")
    p.add_argument("--least", type=int, default=5, help="runs of each case, at least")
    p.add_argument("--cold", action="store_true", help="no warm-up, for cases of which one run takes minutes")
    p.add_argument("--check", type=pathlib.Path, help="what samebit run wrote for the inputs: compare y and the routes with it")
    return p.parse_args()


def load(folder, config):
    """The block with layer 0's weights: experts are one tensor here, and one a matrix in the checkpoint."""
    with torch.device("meta"):
        block = Qwen3NextSparseMoeBlock(config)
    block = block.to(torch.bfloat16).to_empty(device="cpu")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    prefix = "model.layers.0.mlp."
    parameters = dict(block.named_parameters())
    left = set(parameters)
    width = config.moe_intermediate_size
    with contextlib.ExitStack() as stack, torch.no_grad():
        shards = {s: stack.enter_context(safetensors.safe_open(folder / s, "pt")) for s in set(index.values())}
        for name in (n for n in index if n.startswith(prefix)):
            value, key = shards[index[name]].get_tensor(name), name.removeprefix(prefix)
            if key.startswith("experts."):
                _, expert, matrix, _ = key.split(".")
                key = "experts.down_proj" if matrix == "down_proj" else "experts.gate_up_proj"
                to = parameters[key][int(expert)]
                if matrix != "down_proj":
                    to = to[:width] if matrix == "gate_proj" else to[width:]
            else:
                to = parameters[key]
            assert to.shape == value.shape and value.dtype == torch.bfloat16, name
            to.copy_(value)
            left.discard(key)
    assert not left, left
    return block


def run(block, x, dy, backward):
    """One run: y, or a step of one micro-batch with BF16 gradients of x and of all weights."""
    x = x[None]
    if not backward:
        with torch.inference_mode():
            return block(x)[0]
    x = x.detach().requires_grad_()
    y = block(x)
    y.backward(dy[None])
    assert x.grad is not None
    return y[0]


def measure(args, block, experts, x, dy, tokens, backward):
    pool = max(512, 4 * tokens)
    assert len(x) >= pool, f"{args.inputs} has {len(x)} tokens: need {pool}"
    windows = pool // tokens
    reset_peak()
    times, warm, start, i = [], not args.cold, time.perf_counter(), 0
    while warm or len(times) < args.least or sum(times) < args.time:
        window = slice(i % windows * tokens, (i % windows + 1) * tokens)
        block.zero_grad(set_to_none=True)  # not timed
        began = time.perf_counter()
        run(block, x[window], dy[window], backward)
        spent = time.perf_counter() - began
        i += 1
        if not warm:
            times.append(spent)
        elif time.perf_counter() - start > args.time / WARM_UP:
            warm = False
    lines.result(lines.name(args.shape, f"transformers-{experts}", backward, tokens), tokens, times, peak_B=peak())


def check(experts, block, x, path):
    """Is it the same layer? Says how many tokens went to the same experts, and how far their y is from samebit's."""
    with safetensors.safe_open(path, "pt") as f:
        want, ids = f.get_tensor("y"), f.get_tensor("topk_ids")
    x = x[:len(want)]
    with torch.inference_mode():
        y = torch.cat([run(block, part, None, False) for part in x.split(256)])
        routes = torch.cat([block.gate(part)[2] for part in x.split(256)])
    alike = (routes.sort(-1)[0] == ids.sort(-1)[0]).all(-1)
    relative = lambda a, b: ((a - b).norm() / b.norm()).item()
    have, want = y.double(), want.double()
    print(f"# {experts}: {alike.sum()} of {len(x)} tokens go to the same experts; their y differs by",
          f"{relative(have[alike], want[alike]):.2e} (relative L2), {(have - want)[alike].abs().max():.2e} at most;",
          f"all tokens' by {relative(have, want):.2e}", file=sys.stderr, flush=True)
    assert alike.double().mean() > 0.5 and relative(have[alike], want[alike]) < 2e-2, "this is another layer"


def peak():
    """The largest resident size since reset_peak, in bytes; where that cannot be, since the start."""
    for line in lines.proc("self/status"):
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def reset_peak():
    with contextlib.suppress(OSError):
        (lines.PROC / "self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
