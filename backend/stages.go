// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package backend

// A stage's argument names its buffers, with their shapes: T tokens, H hidden, E experts, K slots, I width, R rows.

// Route is R2 to R4 and R13: logits, selection or replay, weights, and what becomes of each token.
type Route struct {
	Tokens int
	X      Buffer // [T,H] BF16
	Replay Buffer // [T,K] I32: ids in place of selection, checked by the caller; nil for none

	Logits  Buffer // [T,E] FP32
	Z       Buffer // [T] FP32, the shared expert's gate logit; nil where there is no shared expert
	Status  Buffer // [T] I32, a contract.Status
	IDs     Buffer // [T,K] I32, -1 where the token is not live
	Weights Buffer // [T,K] FP32, +0 where the token is not live
}

// Rows is the experts' order of work (R5): rows sorted by (expert, token, slot), the shared expert's rows last, as those of
// expert E in slot K.
type Rows struct {
	Tokens, Slots int  // T, K
	Shared        bool // with the shared expert's rows

	Offsets Buffer // [E+2] I32: the rows of expert e are Offsets[e] to Offsets[e+1]
	Token   Buffer // [T*(K+1)] I32: the token of each row
	Slot    Buffer // [T*(K+1)] I32: the slot of each row
	Row     Buffer // [T,K+1] I32: the row of each slot, -1 for none
}

// Plan is R5: Rows from the ids. A backend may cut the rows of the backward's products otherwise than those of the forward's, and
// so must know whose they will be.
type Plan struct {
	IDs      Buffer // [T,K] I32, -1 for a token without work
	Rows     Rows
	Backward bool
}

// Activations are what the experts make of their rows on the way. The shared expert has a width of its own, and so buffers
// of its own, whose first row is row Offsets[E].
type Activations struct {
	G, U Buffer // [R,I] FP32; nil where no backward will follow
	H    Buffer // [R,I] BF16
}

// GateUp is R6 up to h.
type GateUp struct {
	X              Buffer // [T,H] BF16
	Rows           Rows
	Routed, Shared Activations
}

// Down is R6 from h.
type Down struct {
	Rows           Rows
	Routed, Shared Activations
	Out            Buffer // [R,H] BF16, routed and shared rows
}

// Combine is R7.
type Combine struct {
	Rows    Rows
	In      Buffer // [R,H] BF16
	Weights Buffer // [T,K] FP32
	Z       Buffer // [T] FP32
	Status  Buffer // [T] I32
	Y       Buffer // [T,H] BF16
}

// PlanBackward is R5 for the tokens that take part in the backward: those that are live and whose dy is not all zero (R9).
// Weight is each row's route weight; for the shared expert, sigmoid(z).
type PlanBackward struct {
	DY      Buffer // [T,H] BF16
	IDs     Buffer // [T,K] I32
	Weights Buffer // [T,K] FP32
	Z       Buffer // [T] FP32
	Rows    Rows
	Weight  Buffer // [R] FP32
}

// RowGradients are what the backward of the experts' rows makes.
type RowGradients struct {
	DGate, DUp Buffer // [R,I] BF16
	HW         Buffer // [R,I] BF16, bf16(h*w)
}

// ExpertsBackward is R8. Forward is the plan by which the activations lie.
type ExpertsBackward struct {
	DY                     Buffer // [T,H] BF16
	Rows                   Rows
	Weight                 Buffer // [R] FP32
	Forward                Rows
	Routed, Shared         Activations
	RoutedGrad, SharedGrad RowGradients
	DWeight                Buffer // [R] FP32, the gradients of the route weights
}

// RouteBackward is R10 up to the gradients of the logits.
type RouteBackward struct {
	Rows    Rows
	DWeight Buffer // [R] FP32
	Logits  Buffer // [T,E] FP32
	IDs     Buffer // [T,K] I32
	Weights Buffer // [T,K] FP32
	Z       Buffer // [T] FP32

	DLogits Buffer // [T,K] FP32 with NormTopK, by slot; else [T,E]
	DZ      Buffer // [T] FP32
}

// RowsBackward is R9 up to each row's part of dx.
type RowsBackward struct {
	Rows                   Rows
	RoutedGrad, SharedGrad RowGradients
	Out                    Buffer // [R,H] BF16
}

// InputGradient is R9's sum.
type InputGradient struct {
	Rows    Rows
	In      Buffer // [R,H] BF16
	IDs     Buffer // [T,K] I32
	DLogits Buffer
	DZ      Buffer
	DX      Buffer // [T,H] BF16
}

// Gradients are where a fold goes, laid out as the weights: FP32 accumulators, which are added to in place; or BF16, of which
// every element is written by Flush, the stream's sum in one cast (R11).
type Gradients struct {
	Router     Buffer // [E,H]
	SharedGate Buffer // [H]; nil where there is no shared expert
	Experts    []ExpertGradient
	Shared     *ExpertGradient
}

// ExpertGradient is one expert's part of Gradients.
type ExpertGradient struct {
	Gate, Up Buffer // [I,H]
	Down     Buffer // [H,I]
}

// Fold adds a token stream to gradients (R10, R11). Rows that do not fill a segment wait for the next call or for Flush. A fold may
// read the buffers of an Add until the next Flush; so until then nothing is written to them, though they may be given back.
type Fold interface {
	Add(FoldArgs) error
	Flush() error
	Close() error
}

// FoldArgs are one backward's rows, in the stream's order.
type FoldArgs struct {
	X, DY                  Buffer // [T,H] BF16
	Rows                   Rows
	RoutedGrad, SharedGrad RowGradients
	IDs                    Buffer // [T,K] I32
	DLogits, DZ            Buffer
}
