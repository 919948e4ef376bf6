// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !(linux && (amd64 || arm64))

package nccl

import (
	"errors"
	"fmt"
	"runtime"
)

// World is not to be had here.
type World struct{}

// Open says so.
func Open(Place) (*World, error) {
	return nil, fmt.Errorf("nccl: %s/%s: need linux on amd64 or arm64: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}

func (*World) Rank() int                                { panic("nccl: no world") }
func (*World) Size() int                                { panic("nccl: no world") }
func (*World) Exchange([]int, [][]byte, [][]byte) error { panic("nccl: no world") }
func (*World) Abort(error)                              { panic("nccl: no world") }
func (*World) Close() error                             { panic("nccl: no world") }
