// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package tcdot

var found []*ISA

func packSpread(*uint16, int, *byte, int, uint32, uint32) { panic("tcdot: no vectors here") }

func packFloats(*uint16, int, *byte, int, uint32, uint32) { panic("tcdot: no vectors here") }

func packPairs(*uint16, int, *byte, int, uint32, uint32) { panic("tcdot: no vectors here") }

func largest(x []uint16) uint32 { return largestGo(x) }
