# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""Times others' ways to run the Qwen3-Next layer on a GPU, as internal/cuda's BenchmarkLayer times ours: README.md says how.

transformers-grouped_mm is transformers' whole block, forward, and forward and backward with BF16 gradients. triton-experts is
the routed experts alone, forward, in Triton: no router, no sort, no shared expert. Results are Go benchmark lines on standard
output. Weights and tokens are those of BenchmarkLayer, made on the GPU.
"""

import argparse
import gc
import shutil
import subprocess
import sys
import time

import torch
import transformers
import triton
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextSparseMoeBlock

import lines
import made_up
import triton_experts
import truth

WARM_UP = 3  # replays that are not counted
LAST = 8  # tokens that are checked, the last of a batch
FEW = 9  # runs without a graph, beside those in one


def main():
    args = arguments()
    s = made_up.SHAPES["qwen3-next"]
    began = time.perf_counter()
    w = made_up.weights(s, "cuda")
    rivals = [{"transformers-grouped_mm": Transformers, "triton-experts": Triton}[name](s, w) for name in args.rivals]
    torch.cuda.synchronize()
    print_settings(args)
    print(f"# weights made in {time.perf_counter() - began:.1f} s", flush=True)
    for rival in rivals:
        rival.check(args.tokens)
    if not args.rounds:
        measure(args, s, rivals)
        return
    for tokens in args.tokens:  # what is compiled or tuned on first use, before the first round
        for rival in rivals:
            rival.ready(tokens)
    torch.cuda.synchronize()
    print(f"# ready after {time.perf_counter() - began:.1f} s", flush=True)
    for _ in sys.stdin:
        measure(args, s, rivals)
        print("# done", flush=True)


def arguments():
    words = lambda text: text.split(",")
    numbers = lambda text: [int(n) for n in text.split(",")]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rivals", type=words, default=["transformers-grouped_mm", "triton-experts"])
    p.add_argument("--passes", type=words, default=["forward", "forward+backward"])
    p.add_argument("--tokens", type=numbers, default=[1, 8, 64, 256, 1024, 4096, 16384, 32768])
    p.add_argument("--replays", type=int, default=25)
    p.add_argument("--commit", default="unknown", help="for the results")
    p.add_argument("--rounds", action="store_true", help="measure once for each line on standard input, and then say # done")
    return p.parse_args()


def measure(args, s, rivals):
    for backward in (p == "forward+backward" for p in args.passes):
        for tokens in args.tokens:
            for rival in rivals:
                if rival.trains or not backward:
                    one(args, s, rival, backward, tokens)


def one(args, s, rival, backward, tokens):
    """One case. A graph of few tokens holds several batches of other tokens, so that no expert's weights wait in the cache; a
    backward writes 3.2 GB of gradients behind itself, and needs no such help."""
    batches = 1 if backward else max(1, min(16, 1024 // tokens))
    runs = [rival.run(tokens, 100 + i, backward) for i in range(batches)]

    def all_of_them():
        for run in runs:
            run()

    name = lines.name("qwen3-next", rival.name, backward, tokens)
    graph, why = capture(all_of_them)
    more = {}
    if graph:
        seconds = timed(graph.replay, args.replays)
        if rival.trains:
            more["ungraphed_ns"] = 1e9 * sorted(timed(runs[0], FEW))[FEW // 2]
    else:
        print(f"# {name} runs without a CUDA graph: {why}", flush=True)
        seconds = timed(all_of_them, args.replays)
    lines.result(name, tokens, [t / batches for t in seconds], in_graph=bool(graph), **more)
    del graph, runs, all_of_them
    gc.collect()
    torch.cuda.empty_cache()


def capture(run):
    """A CUDA graph of run; or None, and why not."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError as e:
        torch.cuda.synchronize()
        return None, str(e).split("\n")[0]
    return graph, ""


def timed(run, times):
    """How long each run takes on the GPU, in seconds."""
    seconds = []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(WARM_UP + times):
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return seconds[WARM_UP:]


class Transformers:
    """transformers' block, with grouped_mm for the experts."""

    name, trains = "transformers-grouped_mm", True

    def __init__(self, s, w):
        self.s, self.w = s, w
        self.block = block(s, w, "cuda")

    def run(self, tokens, seed, backward):
        x = made_up.tokens(tokens, self.s, seed, "cuda")
        if not backward:
            return lambda: self.forward(x)
        x.requires_grad_()
        dy = made_up.tokens(tokens, self.s, seed, "cuda", made_up.UPSTREAM)
        return lambda: self.both(x, dy)

    def forward(self, x):
        with torch.no_grad():
            return self.block(x[None])[0]

    def both(self, x, dy):
        """With the gradients of x and of every weight, in BF16 and made anew."""
        x.grad = None
        self.block.zero_grad(set_to_none=True)
        y = self.block(x[None])[0]
        y.backward(dy)
        return y

    def ready(self, tokens):
        self.run(tokens, 0, True)()
        self.block.zero_grad(set_to_none=True)

    def check(self, tokens):
        for n in {LAST, max(tokens)}:
            check_block(self.block, self.s, self.w, "cuda", n)
        self.block.zero_grad(set_to_none=True)


def block(s, w, device):
    """The block with these weights: its experts' are w's, not copies."""
    config = transformers.Qwen3NextConfig(hidden_size=s.hidden, num_experts=s.experts, num_experts_per_tok=s.top, norm_topk_prob=True,
                                          moe_intermediate_size=s.width, shared_expert_intermediate_size=s.width, hidden_act="silu")
    config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        b = Qwen3NextSparseMoeBlock(config)
    gate, up = w.shared_gate_up.chunk(2)
    values = {"gate.weight": w.router, "experts.gate_up_proj": w.gate_up, "experts.down_proj": w.down, "shared_expert.gate_proj.weight": gate,
              "shared_expert.up_proj.weight": up, "shared_expert.down_proj.weight": w.shared_down, "shared_expert_gate.weight": w.shared_gate}
    b.load_state_dict(values, assign=True)
    for p in b.parameters():
        p.requires_grad_()
        assert p.dtype == torch.bfloat16 and p.device.type == device, (p.dtype, p.device)
    return b


def check_block(b, s, w, device, tokens):
    """Is it the same layer? y and dx of the last tokens against float64, over the block's own routes: its logits are BF16."""
    x, dy = (made_up.tokens(tokens, s, 99, device, role) for role in (made_up.TOKENS, made_up.UPSTREAM))
    x.requires_grad_()
    y = b(x[None])[0]
    y.backward(dy)
    exact = x[-LAST:].detach().double().requires_grad_()
    need = truth.layer(exact, w, b.gate(x)[2][-LAST:])
    need.backward(dy[-LAST:].double())
    truth.check("transformers-grouped_mm", "y", tokens, y[-LAST:].detach(), need.detach())
    truth.check("transformers-grouped_mm", "dx", tokens, x.grad[-LAST:], exact.grad)


class Triton:
    """The routed experts alone, over routes that are given."""

    name, trains = "triton-experts", False

    def __init__(self, s, w):
        self.s, self.w = s, w

    def run(self, tokens, seed, backward):
        x = made_up.tokens(tokens, self.s, seed, "cuda")
        ids, weights = truth.route(x.float(), self.w.router, self.s.top)
        p = triton_experts.plan(ids, weights, self.s.experts, triton_experts.tile_for(tokens))
        return lambda: triton_experts.experts(x, self.w.gate_up, self.w.down, p)

    def ready(self, tokens):
        self.run(tokens, 0, False)()

    def check(self, tokens):
        largest = {triton_experts.tile_for(n): max(n, 24) for n in sorted(tokens)}  # that each tile is for
        for tile, n in largest.items():
            check_experts(self.s, self.w, "cuda", tile, n)


def check_experts(s, w, device, tile, tokens):
    """Is it the same layer? y of the last tokens against float64, over the same routes."""
    x = made_up.tokens(tokens, s, 99, device).to(w.down.dtype)
    ids, _ = truth.route(x.float(), w.router, s.top)
    ids[:, -1] = torch.where((ids == ids[-1, 0]).any(-1), ids[:, -1], ids[-1, 0])  # an expert of all tokens, more than a tile holds
    weights = (x.float() @ w.router.float().T).gather(1, ids).softmax(-1)
    y = triton_experts.experts(x, w.gate_up, w.down, triton_experts.plan(ids, weights, s.experts, tile))
    need = truth.layer(x[-LAST:].double(), w, ids[-LAST:], shared=False)
    truth.check(f"triton-experts {tile}", "y", tokens, y[-LAST:], need)


def print_settings(args):
    gpu = torch.cuda.get_device_properties(0)
    ask = ["driver_version", "clocks.max.sm", "clocks.max.mem"]
    driver = ["unknown"] * len(ask)
    if smi := shutil.which("nvidia-smi"):
        out = subprocess.run([smi, f"--query-gpu={','.join(ask)}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30)
        driver = [v.strip() for v in out.stdout.split("\n")[0].split(",")] if out.returncode == 0 else driver
    lines.settings(gpu=f"{gpu.name}, {gpu.multi_processor_count} multiprocessors", driver=driver[0],
                   clock=f"SM {driver[1]} MHz at most, memory {driver[2]} MHz, not locked", torch=torch.__version__,
                   triton=triton.__version__, transformers=transformers.__version__, commit=args.commit)


if __name__ == "__main__":
    main()
