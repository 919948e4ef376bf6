// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "fmt"

// Shape is what a layer's sizes are, and how it weighs its routes.
type Shape struct {
	Hidden      int  // H
	Experts     int  // E
	TopK        int  // K, 1 to E
	Width       int  // I, each expert's width
	SharedWidth int  // the shared expert's width; 0 where there is none
	NormTopK    bool // weights are normalised over the selected K (true) or over all E (false), R4
}

// Expert is one SwiGLU expert's weights, as a checkpoint stores them.
type Expert struct {
	Gate, Up []BF16 // [I,H]
	Down     []BF16 // [H,I]
}

// Weights are a layer's weights. The shared expert and its gate are both there or both nil.
type Weights struct {
	Router     []BF16 // [E,H]
	Experts    []Expert
	Shared     *Expert
	SharedGate []BF16 // [H]
}

// Check says what is wrong with a shape, or nil.
func (s Shape) Check() error {
	switch {
	case s.Hidden < 1 || s.Experts < 1 || s.Width < 1 || s.SharedWidth < 0:
		return fmt.Errorf("shape: hidden %d, experts %d, width %d and shared width %d: need at least 1, 1, 1 and 0",
			s.Hidden, s.Experts, s.Width, s.SharedWidth)
	case s.TopK < 1 || s.TopK > s.Experts:
		return fmt.Errorf("shape: top-k %d: need 1 to %d, the number of experts", s.TopK, s.Experts)
	}
	return nil
}

// Check says which weight does not have the shape's size, or nil.
func (w *Weights) Check(s Shape) error {
	if err := s.Check(); err != nil {
		return err
	}
	size := func(name string, have, need int) error {
		if have != need {
			return fmt.Errorf("weights: %s has %d elements: need %d", name, have, need)
		}
		return nil
	}
	expert := func(name string, e *Expert, width int) error {
		for _, m := range []struct {
			name string
			data []BF16
		}{{"gate", e.Gate}, {"up", e.Up}, {"down", e.Down}} {
			if err := size(name+" "+m.name, len(m.data), s.Hidden*width); err != nil {
				return err
			}
		}
		return nil
	}
	if err := size("router", len(w.Router), s.Experts*s.Hidden); err != nil {
		return err
	}
	if len(w.Experts) != s.Experts {
		return fmt.Errorf("weights: %d experts: need %d", len(w.Experts), s.Experts)
	}
	for e := range w.Experts {
		if err := expert(fmt.Sprintf("expert %d", e), &w.Experts[e], s.Width); err != nil {
			return err
		}
	}
	if (w.Shared != nil) != (s.SharedWidth > 0) {
		return fmt.Errorf("weights: shared expert present: %t; need %t (shared width %d)", w.Shared != nil, s.SharedWidth > 0, s.SharedWidth)
	}
	if w.Shared == nil {
		return size("shared gate", len(w.SharedGate), 0)
	}
	if err := size("shared gate", len(w.SharedGate), s.Hidden); err != nil {
		return err
	}
	return expert("shared expert", w.Shared, s.SharedWidth)
}
