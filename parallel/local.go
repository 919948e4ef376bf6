// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/samebit/samebit/internal/patience"
)

// Local gives the groups of n ranks that are goroutines of this process, one for each. What one sends the other copies from
// its memory. A rank waits 10 minutes for another's call.
func Local(n int) []Group { return LocalWith(n, patience.Defaults().Call) }

// LocalWith is Local with another limit to how long a rank waits for another's call: then all have an error.
func LocalWith(n int, limit time.Duration) []Group {
	h := &hub{limit: limit, over: make(chan struct{}), boxes: make([][]chan parcel, n), left: make([]chan struct{}, n)}
	groups := make([]Group, n)
	for to := range n {
		h.boxes[to], h.left[to] = make([]chan parcel, n), make(chan struct{})
		for from := range n {
			h.boxes[to][from] = make(chan parcel, 1)
		}
		groups[to] = NewGroup(&local{hub: h, rank: to})
	}
	return groups
}

// hub is where ranks of one process meet.
type hub struct {
	limit time.Duration
	boxes [][]chan parcel // [to][from]
	left  []chan struct{} // closed when the rank has left

	abort sync.Once
	over  chan struct{} // closed by abort
	err   error         // why
}

// parcel is bytes under way; the sender keeps them until they were taken.
type parcel struct {
	data  []byte
	taken chan<- struct{}
}

// local implements Link for one rank.
type local struct {
	*hub
	rank int
	quit sync.Once
}

func (l *local) Rank() int { return l.rank }
func (l *local) Size() int { return len(l.boxes) }

func (l *local) Exchange(peers []int, recv, send [][]byte) error {
	select {
	case <-l.over:
		return l.err
	default:
	}
	waits := patience.Begin(l.limit)
	look := time.NewTicker(waits.Every())
	defer look.Stop()
	taken := make(chan struct{}, len(peers))
	for i, to := range peers {
		l.boxes[to][l.rank] <- parcel{send[i], taken} // the one before was taken, or there would have been an error
	}
	for i, from := range peers {
		if err := l.take(recv[i], from, &waits, look.C); err != nil {
			return err
		}
	}
	for n := 0; n < len(peers); {
		select {
		case <-taken:
			n++
		case <-l.over:
			return l.err
		case <-look.C:
			if waits.Over() {
				return l.fail("other ranks did not take what was sent in %v: need the same calls on every rank", l.limit)
			}
		}
	}
	return nil
}

// take receives what a rank sends.
func (l *local) take(into []byte, from int, waits *patience.Wait, look <-chan time.Time) error {
	box := l.boxes[l.rank][from]
	var p parcel
	for p.taken == nil {
		select {
		case p = <-box:
		case <-l.over:
			return l.err
		case <-look:
			if waits.Over() {
				return l.fail("rank %d has not called what this rank has in %v: need the same calls on every rank", from, l.limit)
			}
		case <-l.left[from]:
			select {
			case p = <-box: // sent before
			default:
				return l.fail("rank %d has left: need the same calls on every rank", from)
			}
		}
	}
	if len(p.data) != len(into) {
		return l.fail("rank %d sent %d bytes where %d were due: need the same calls on every rank", from, len(p.data), len(into))
	}
	copy(into, p.data)
	p.taken <- struct{}{}
	return nil
}

// fail is this rank's error, and that of all others.
func (l *local) fail(format string, args ...any) error {
	l.Abort(fmt.Errorf(format, args...))
	return l.err
}

func (l *local) Abort(err error) {
	l.abort.Do(func() {
		var failed *Failed
		if !errors.As(err, &failed) { // else it is what another rank has said
			failed = &Failed{l.rank, err.Error()}
		}
		l.err = failed
		close(l.over)
	})
}

func (l *local) Close() error {
	l.quit.Do(func() { close(l.left[l.rank]) })
	return nil
}
