// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package elements

var found []*Set
