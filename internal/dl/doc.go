// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package dl loads shared libraries.
package dl
