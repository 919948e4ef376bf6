# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""Runs our benchmarks and gpu.py in turn, on one GPU: ours, theirs, ours, theirs, until the time is up.

    python3 bench/rivals/side_by_side.py BINARIES --commit NAME --out RESULTS

BINARIES holds cuda.test, the test binary of internal/cuda, whose BenchmarkLayer times the forward, and samebit, whose bench times
forward and backward. RESULTS gets ours.txt and theirs.txt, Go benchmark lines that are written as they come, all programs' errors,
and table.txt, which is also printed last: the median of all rounds, and how many times as long the others take. A part that hangs
is ended, and what the other parts gave is kept.
"""

import argparse
import contextlib
import os
import pathlib
import queue
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"BenchmarkLayer/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\b")
OURS = ["cuda.test -test.run ^$ -test.bench ^BenchmarkLayer -test.benchtime 1x",
        "samebit bench --backend cuda --shape qwen3-next --tokens 1,8,64,256,1024,4096,16384,32768"
        " --pass forward+backward,forward+backward-fp32 --count 25 --no-bandwidth --out {out}"]
STAGES = "gateup", "down", "combine"  # of the routed and the shared experts, as BenchmarkLayer names them
RESERVE = 3  # seconds, for the table and for ending what runs


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ours.err").unlink(missing_ok=True)
    end = time.monotonic() + args.limit - RESERVE
    left = lambda: end - time.monotonic()
    theirs = Theirs(args)
    try:
        # The rivals get ready first, so that nothing else uses the GPU while something is timed.
        alive = theirs.wait("# ready", min(60, 0.7 * left()))
        header = [line for line in (args.out / "theirs.txt").read_text().splitlines() if line.startswith(("gpu:", "driver:", "clock:"))]
        header += [f"commit: {args.commit}", f"command: {'; '.join(args.ours)}"]
        (args.out / "ours.txt").write_text("\n".join(header) + "\n\n")
        took = 0.0
        for round in range(args.rounds):
            if round > 0 and left() < took:
                break
            began = time.monotonic()
            for program in args.ours:
                ours(args, program, min(args.part, left()))
            alive = alive and theirs.round(min(args.part, left()))
            took = time.monotonic() - began
            print(f"round {round + 1}: {took:.1f} s, {left():.1f} s left", flush=True)
            if left() < 1:
                break
    finally:
        theirs.end()
        text = table(args.out)
        (args.out / "table.txt").write_text(text)
        print(text, end="", flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binaries", type=pathlib.Path, help="folder with cuda.test and samebit")
    p.add_argument("--out", type=pathlib.Path, required=True, help="folder for the results")
    p.add_argument("--commit", required=True, help="what cuda.test was built from")
    p.add_argument("--limit", type=float, default=150, help="seconds for everything")
    p.add_argument("--part", type=float, default=40, help="seconds for one part of a round")
    p.add_argument("--rounds", type=int, default=9, help="at most")
    p.add_argument("--ours", action="append", help="program of BINARIES that prints our lines, or writes them to the file {out}, with its"
                   " arguments; may be given again")
    p.add_argument("--rival", default=f"{sys.executable} {HERE / 'gpu.py'}", help="what runs the rivals")
    p.add_argument("--rival-flags", default="", help="more flags for it")
    args = p.parse_args()
    args.ours = args.ours or OURS
    return args


def ours(args, program, seconds):
    """One run of a program of ours; complete lines go to ours.txt as they come."""
    written = args.out / "ours.new"
    written.unlink(missing_ok=True)
    name, *flags = program.replace("{out}", str(written)).split()
    with (args.out / "ours.err").open("a") as errors, (args.out / "ours.txt").open("a") as to:
        try:
            p = subprocess.Popen([str((args.binaries / name).resolve()), *flags], stdout=subprocess.PIPE, stderr=errors, text=True,
                                 start_new_session=True, env={**os.environ, "SAMEBIT_REQUIRE": "cuda"})
        except OSError as e:
            print(f"{name} does not run: {e}", flush=True)
            return
        timer = threading.Timer(max(seconds, 1), kill, [p])
        timer.start()
        results = sum(kept(line, to, errors) for line in p.stdout)
        status = p.wait()
        timer.cancel()
        if written.exists():
            results += sum(kept(line, to, errors) for line in written.read_text().splitlines(True))
            written.unlink()
    if status != 0 or results == 0:
        print(f"{name}: exit status {status}, {results} results: see ours.err", flush=True)


def kept(line, to, errors):
    """Writes a line where it belongs; is it a result?"""
    result = LINE.match(line) is not None
    file = to if result or re.match(r"(Unit|goos:|goarch:|cpu:) ", line) else errors
    file.write(line)
    file.flush()
    return result


class Theirs:
    """gpu.py, which stays: it measures once for every line that it is sent."""

    def __init__(self, args):
        self.said = queue.Queue()
        program = [*args.rival.split(), "--rounds", "--commit", args.commit, *args.rival_flags.split()]
        self.process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(args.out / "theirs.err").open("w"),
                                        text=True, start_new_session=True)
        threading.Thread(target=self.read, args=[(args.out / "theirs.txt").open("w")], daemon=True).start()

    def read(self, to):
        for line in self.process.stdout:
            to.write(line)
            to.flush()
            if line.startswith("# "):
                print("theirs:", line[2:].rstrip(), flush=True)
                self.said.put(line)
        self.said.put("# ended")

    def wait(self, begin, seconds):
        """Waits for a line; False, and the end of the process, where it does not come."""
        end, line = time.monotonic() + max(seconds, 1), ""
        with contextlib.suppress(queue.Empty):
            while not line.startswith((begin, "# ended")):
                line = self.said.get(timeout=max(0, end - time.monotonic()))
            if line.startswith(begin):
                return True
        print(f"the rivals {'ended' if line == '# ended' else 'took too long'}: no {begin!r}; see theirs.err", flush=True)
        self.end()
        return False

    def round(self, seconds):
        with contextlib.suppress(OSError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return self.wait("# done", seconds)

    def end(self):
        kill(self.process)


def kill(process):
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def table(out):
    """Milliseconds of each case by who took them, and how many times as long as ours the others are. What our experts take alone
    is the sum of their stages' times; it counts the shared expert in."""
    times = {}
    for path in (out / "ours.txt", out / "theirs.txt"):
        for line in path.read_text().splitlines() if path.exists() else []:
            if m := LINE.match(line):
                part = dict(p.split("=", 1) for p in m[1].split("/"))
                if part["shape"] != "qwen3-next":
                    continue
                case, by = times.setdefault((part["pass"], int(part["tokens"])), {}), part.get("rival", part.get("backend"))
                case.setdefault(by, []).append(float(m[2]) / 1e6)
                stages = {unit: float(value) / 1e6 for value, unit in re.findall(r"([\d.]+) (\w+)-ns\b", line)}
                fastest = [min((v for unit, v in stages.items() if re.fullmatch(s + r"\d*", unit)), default=None) for s in STAGES]
                if by == "cuda" and None not in fastest:
                    case.setdefault("cuda's experts", []).append(sum(fastest))
    names = sorted({by for case in times.values() for by in case} - {"cuda"})
    rows = [["pass", "tokens", "cuda", "spread"] + [cell for n in names for cell in (n, "ratio")]]
    for (what, tokens), case in sorted(times.items()):
        own = case.get("cuda", [])
        row = [what, str(tokens), shown(own), f"{max(own) / min(own) - 1:.1%}" if own else "-"]
        for n in names:
            row += [shown(case.get(n, [])), f"{statistics.median(case[n]) / statistics.median(own):.2f}" if own and n in case else "-"]
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "ms\n" + "".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() + "\n" for row in rows)


def shown(times):
    return f"{statistics.median(times):.3f}" if times else "-"


if __name__ == "__main__":
    main()
