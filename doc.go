// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package samebit is a mixture-of-experts layer, forward and backward, whose bits depend on its inputs alone: not on the
// batch a token travels in, its place there, chunking, padding, micro-batch splits, ranks, or which backend did the work.
//
// Open reads a layer from a Hugging Face folder; Forward runs tokens through it; Backward gives their gradients and adds
// the weights' gradients to a Gradients, which is a fold over the token stream. The arithmetic is that of package
// contract, whose rules (R0 to R14) the comments name.
package samebit
