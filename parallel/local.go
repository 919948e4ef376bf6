// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Patience is how long a rank waits for others before it gives them up.
const Patience = 10 * time.Minute

// Local gives the groups of n ranks that are goroutines of this process, one for each. What one sends the other copies from
// its memory.
func Local(n int) []Group { return localWith(n, Patience) }

func localWith(n int, patience time.Duration) []Group {
	h := &hub{patience: patience, over: make(chan struct{}), boxes: make([][]chan parcel, n), left: make([]chan struct{}, n)}
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
	patience time.Duration
	boxes    [][]chan parcel // [to][from]
	left     []chan struct{} // closed when the rank has left

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
	limit := time.NewTimer(l.patience)
	defer limit.Stop()
	taken := make(chan struct{}, len(peers))
	for i, to := range peers {
		l.boxes[to][l.rank] <- parcel{send[i], taken} // the one before was taken, or there would have been an error
	}
	for i, from := range peers {
		if err := l.take(recv[i], from, limit.C); err != nil {
			return err
		}
	}
	for range peers {
		select {
		case <-taken:
		case <-l.over:
			return l.err
		case <-limit.C:
			return l.fail("other ranks did not take what was sent in %v", l.patience)
		}
	}
	return nil
}

// take receives what a rank sends.
func (l *local) take(into []byte, from int, limit <-chan time.Time) error {
	box := l.boxes[l.rank][from]
	var p parcel
	select {
	case p = <-box:
	case <-l.over:
		return l.err
	case <-limit:
		return l.fail("no word of rank %d in %v", from, l.patience)
	case <-l.left[from]:
		select {
		case p = <-box: // sent before
		default:
			return l.fail("rank %d has left: need the same calls on every rank", from)
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
