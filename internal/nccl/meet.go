// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/samebit/samebit/internal/patience"
)

const (
	greets       = 5 * time.Second // for a caller to say who it is
	longestHello = 4 << 10         // bytes of that
	parting      = 3 * time.Second // for the others' goodbyes
)

// message is a line between rank 0 and another.
type message struct {
	Token string `json:"token,omitempty"` // the first of a rank
	Rank  int    `json:"rank"`            // that it is from, or about
	Size  int    `json:"size,omitempty"`
	ID    []byte `json:"id,omitempty"`   // NCCL's, the first of rank 0
	Fail  string `json:"fail,omitempty"` // why all must end
	Bye   bool   `json:"bye,omitempty"`  // it leaves
	Left  bool   `json:"left,omitempty"` // it has left, as rank 0 passes on
}

// peer is a connection to another rank.
type peer struct {
	net.Conn
	in      *json.Decoder
	mu      sync.Mutex // of out
	out     *json.Encoder
	rank    int
	left    bool          // guarded by meeting's
	silence time.Duration // after which it is given up
	room    int           // bytes that it may still send
}

func newPeer(c net.Conn, silence time.Duration) *peer {
	p := &peer{Conn: c, out: json.NewEncoder(c), silence: silence, room: math.MaxInt}
	p.in = json.NewDecoder(p)
	return p
}

// Read waits for what the other rank says. It looks up now and then: time in which this process was stopped is no silence.
func (p *peer) Read(b []byte) (int, error) {
	if p.room == 0 {
		return 0, errors.New("nccl: too long a message")
	}
	for quiet := patience.Begin(p.silence); ; {
		p.SetReadDeadline(time.Now().Add(quiet.Every()))
		n, err := p.Conn.Read(b[:min(len(b), p.room)])
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || quiet.Over() {
			p.room -= n
			return n, err
		}
	}
}

func (p *peer) send(m message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.SetWriteDeadline(time.Now().Add(p.silence))
	return p.out.Encode(m)
}

// meeting is rank 0's connections to all, or another's to rank 0.
type meeting struct {
	Place
	limits patience.Limits
	peers  []*peer

	mu     sync.Mutex
	left   map[int]time.Time
	err    error
	over   chan struct{} // closed with err
	ending chan struct{}
	gone   sync.WaitGroup // listeners
}

// meet brings all ranks together. makeID is called on rank 0, and all get what it gives.
func meet(p Place, limits patience.Limits, makeID func() ([]byte, error)) (m *meeting, id []byte, err error) {
	m = &meeting{Place: p, limits: limits, left: map[int]time.Time{}, over: make(chan struct{}), ending: make(chan struct{})}
	defer func() {
		if err != nil {
			for _, peer := range m.peers {
				peer.send(message{Rank: p.Rank, Fail: err.Error()})
				peer.Close()
			}
		}
	}()
	if p.Rank == 0 {
		if err = m.receive(); err == nil {
			id, err = makeID()
		}
		for _, peer := range m.peers {
			if err == nil {
				err = peer.send(message{ID: id})
			}
		}
	} else {
		id, err = m.call()
	}
	if err != nil {
		return m, nil, err
	}
	for _, peer := range m.peers {
		m.gone.Go(func() { m.listen(peer) })
	}
	go m.live()
	return m, id, nil
}

// receive is rank 0's: it waits for all others. Callers are greeted side by side, so that one that says nothing holds up nobody.
func (m *meeting) receive() error {
	if m.Size == 1 {
		return nil
	}
	l, err := net.Listen("tcp", m.Address)
	if err != nil {
		return fmt.Errorf("nccl: rank 0 cannot be called: need an address of its own machine in MASTER_ADDR: %w", err)
	}
	defer l.Close()
	calls, done := make(chan greeting), make(chan struct{})
	defer close(done)
	go m.accept(l, calls, done)
	var wrong error // of which all are told that come in a while
	var strangers []string
	waits := patience.Begin(m.limits.Meet)
	look := time.NewTicker(waits.Every())
	defer look.Stop()
	came := map[int]bool{}
	for len(m.peers) < m.Size-1 {
		select {
		case <-look.C:
			if waits.Over() && wrong != nil {
				return wrong
			} else if waits.Over() {
				return fmt.Errorf("nccl: found %d of %d ranks at %s in %v: need all%s", len(m.peers)+1, m.Size, m.Address, m.limits.Meet, sentAway(strangers))
			}
		case g := <-calls:
			if g.stranger != "" {
				strangers = append(strangers, g.stranger)
				continue
			}
			m.peers = append(m.peers, g.peer)
			hello := g.hello
			if wrong == nil && (hello.Size != m.Size || hello.Rank < 1 || hello.Rank >= m.Size || came[hello.Rank]) {
				wrong = fmt.Errorf("nccl: rank 0 of %d met rank %d of %d: need each of 1 to %d, once", m.Size, hello.Rank, hello.Size, m.Size-1)
				waits = patience.Begin(min(greets, m.limits.Meet))
			}
			came[hello.Rank] = true
		}
	}
	return wrong
}

// sentAway says who called and was none of the ranks.
func sentAway(strangers []string) string {
	if len(strangers) == 0 {
		return ""
	}
	const most = 4
	text := "; sent away: " + strings.Join(strangers[:min(len(strangers), most)], ", ")
	if n := len(strangers) - most; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// greeting is a rank that has called, or why the caller is none.
type greeting struct {
	peer     *peer
	hello    message
	stranger string
}

// accept greets all callers until the listener is closed.
func (m *meeting) accept(l net.Listener, calls chan<- greeting, done <-chan struct{}) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go func() {
			g := m.greet(c)
			select {
			case calls <- g:
			case <-done:
				c.Close()
			}
		}()
	}
}

// greet hears who has called.
func (m *meeting) greet(c net.Conn) greeting {
	p := newPeer(c, m.limits.Silence)
	p.room = longestHello
	slow := time.AfterFunc(greets, func() { c.Close() })
	defer slow.Stop()
	g := greeting{peer: p}
	if err := p.in.Decode(&g.hello); err != nil {
		g.stranger = fmt.Sprintf("%v, which did not say what a rank does", c.RemoteAddr())
		c.Close()
	} else if subtle.ConstantTimeCompare([]byte(g.hello.Token), []byte(m.Token)) == 0 {
		g.stranger = fmt.Sprintf("rank %d of %d at %v, with another token", g.hello.Rank, g.hello.Size, c.RemoteAddr())
		p.send(message{Fail: fmt.Sprintf("nccl: rank 0 at %s has another token: need the same token on every rank", m.Address)})
		c.Close()
	}
	p.rank, p.room = g.hello.Rank, math.MaxInt
	return g
}

// call is another rank's: it calls rank 0 until that is there.
func (m *meeting) call() ([]byte, error) {
	var c net.Conn
	var err error
	for waits := patience.Begin(m.limits.Meet); ; time.Sleep(100 * time.Millisecond) {
		if c, err = net.DialTimeout("tcp", m.Address, 5*time.Second); err == nil {
			break
		}
		if waits.Over() {
			return nil, fmt.Errorf("nccl: calling rank 0: %w", err)
		}
	}
	p := newPeer(c, m.limits.Meet+greets)
	m.peers = []*peer{p}
	if err := p.send(message{Token: m.Token, Rank: m.Rank, Size: m.Size}); err != nil {
		return nil, fmt.Errorf("nccl: calling rank 0: %w", err)
	}
	var reply message
	switch err := p.in.Decode(&reply); {
	case err != nil:
		return nil, fmt.Errorf("nccl: rank 0 at %s does not answer: need the same token on every rank: %w", m.Address, err)
	case reply.Fail != "":
		return nil, errors.New(reply.Fail)
	}
	p.silence = m.limits.Silence
	return reply.ID, nil
}

// listen hears what a rank says, and rank 0 passes it on.
func (m *meeting) listen(p *peer) {
	for {
		var heard message
		err := p.in.Decode(&heard)
		m.mu.Lock()
		left := p.left
		p.left = left || heard.Bye
		if heard.Bye || heard.Left {
			m.left[heard.Rank] = time.Now()
		}
		m.mu.Unlock()
		switch {
		case err != nil && !left:
			m.fail(fmt.Errorf("rank %d is gone, or stands still", p.rank))
			return
		case err != nil:
			return
		case heard.Fail != "":
			m.end(errors.New(heard.Fail))
		case heard.Bye && m.Rank == 0:
			m.tell(message{Rank: p.rank, Left: true})
		}
	}
}

// missing is one of some ranks that has left for good; what it sent before may be under way for a moment.
func (m *meeting) missing(ranks []int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range ranks {
		if when, is := m.left[r]; is && time.Since(when) > time.Second {
			return fmt.Errorf("rank %d has left: need the same calls on every rank", r)
		}
	}
	return nil
}

// live gives signs of life.
func (m *meeting) live() {
	for {
		select {
		case <-m.ending:
			return
		case <-time.After(m.limits.Heartbeat):
			m.tell(message{Rank: m.Rank})
		}
	}
}

func (m *meeting) tell(what message) {
	for _, p := range m.peers {
		p.send(what) // whether it is heard shows in what comes back
	}
}

// fail ends the exchanges of all ranks with this rank's error.
func (m *meeting) fail(err error) { m.end(fmt.Errorf("rank %d: %w", m.Rank, err)) }

// end takes note of the first error, and rank 0 tells all.
func (m *meeting) end(err error) {
	m.mu.Lock()
	first := m.err == nil
	if first {
		m.err = err
		close(m.over)
	}
	m.mu.Unlock()
	if first {
		m.tell(message{Rank: m.Rank, Fail: err.Error()})
	}
}

// leave says goodbye, and waits for the others' as long as they live: rank 0 passes on what they say. Where one has failed it waits a
// moment.
func (m *meeting) leave() {
	m.tell(message{Rank: m.Rank, Bye: true})
	for failing := patience.Begin(parting); !failing.Over(); time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		if m.err == nil {
			failing.Again()
		}
		all := true
		for _, p := range m.peers {
			all = all && p.left
		}
		m.mu.Unlock()
		if all {
			break
		}
	}
	close(m.ending)
	for _, p := range m.peers {
		m.mu.Lock()
		p.left = true
		m.mu.Unlock()
		p.Close()
	}
	m.gone.Wait()
}
