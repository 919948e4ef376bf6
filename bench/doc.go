// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package bench times the layer, and writes and reads the results as Go benchmark lines, so that benchstat takes them:
//
//	BenchmarkLayer/shape=qwen3-next/backend=cpu/pass=forward/tokens=1024 20 950000 ns/op ...
//
// A line is one case. Its number of runs is that of the timed ones; ns/op is the median run, with the fastest and the slowest
// beside it. Lines of other programs, as those of bench/rivals, have rival=NAME in place of backend=NAME.
//
// Every run takes other tokens than the run before it. At one token that is what makes the weights come from memory: the next
// token's experts, 10 of 512, are others than those that the caches still hold. The router and the shared expert are read every
// time, and may stay in a large cache.
//
// On a GPU a pass runs on tensors in its memory, from a CUDA graph: an engine's calls look like that. A graph holds up to 16
// runs over different tokens, for the same reason, and a run is one's part of a replay.
package bench
