// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"errors"
	"strings"
	"testing"
)

// A long error, of bytes that JSON writes as six, still fits into a notice.
func TestLongErrors(t *testing.T) {
	groups := Local(2)
	for _, text := range []string{strings.Repeat("x", 3*notice), strings.Repeat("\x01", 3*notice), strings.Repeat("\xff", 3*notice)} {
		done := make(chan error, 2)
		for i, g := range groups {
			go func() {
				var mine error
				if i == 1 {
					mine = errors.New(text)
				}
				_, err := say(&Rank{Group: g}, "test", 0, mine)
				done <- err
			}()
		}
		for range groups {
			if err := <-done; err == nil || len(err.Error()) < notice/8 {
				t.Errorf("got %.80v, want the error's beginning at least", err)
			}
		}
	}
}
