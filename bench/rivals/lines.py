# Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

"""Results as Go benchmark lines, which samebit bench and benchstat read."""

import os
import pathlib
import platform
import statistics
import sys

PROC = pathlib.Path("/proc")


def name(shape, rival, backward, tokens):
    return f"BenchmarkLayer/shape={shape}/rival={rival}/pass={'forward+backward' if backward else 'forward'}/tokens={tokens}"


def result(name, tokens, seconds, **more):
    """Prints a case: the times of its runs, and other values by their units."""
    median = statistics.median(seconds)
    nanoseconds = lambda t: f"{t * 1e9:.0f}"
    print(name, len(seconds), nanoseconds(median), "ns/op", nanoseconds(min(seconds)), "min-ns/op", nanoseconds(max(seconds)), "max-ns/op",
          f"{tokens / median:.4g} tokens/s", *(f"{value:.0f} {unit.replace('_', '-')}" for unit, value in more.items()), flush=True)


def settings(**more):
    """Prints the configuration lines: the machine, and what else is told."""
    cpu = next((line.split(":")[1].strip() for line in proc("cpuinfo") if line.startswith("model name")), platform.processor())
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    print("Unit tokens/s better=higher")
    everywhere = {"goos": platform.system().lower(), "goarch": arch, "cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version()}
    command = [os.path.relpath(sys.argv[0]), *sys.argv[1:]]
    for key, value in {**everywhere, **more, "command": " ".join(command)}.items():
        print(f"{key}: {value}")
    print(flush=True)


def proc(name):
    return (PROC / name).read_text().splitlines() if PROC.exists() else []
