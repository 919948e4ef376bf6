// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

// Memory is what a case took, in bytes: of the GPU, where the case ran on tensors there. Where the system does not tell, it is zero.
type Memory struct {
	Peak      int64 `json:"peak"`      // the most that the process had resident while the case ran; elsewhere than on Linux, since it started
	Given     int64 `json:"given"`     // weights made up in memory, which stay beside what the backend makes of them; 0 with a checkpoint
	Loaded    int64 `json:"loaded"`    // by how much loading the layer raised what is resident
	Gradients int64 `json:"gradients"` // what the pass's gradients hold
	Workspace int64 `json:"workspace"` // all the rest of the peak: what stages leave for the next, inputs, outputs, the program itself
	Allocated int64 `json:"allocated"` // what a run takes anew from Go's heap
}

// rest is the workspace.
func (m Memory) rest() int64 {
	if m.Peak == 0 || m.Loaded == 0 {
		return 0
	}
	return max(0, m.Peak-m.Given-m.Loaded-m.Gradients)
}
