// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	patience  = 60 * time.Second // for all to come
	heartbeat = 2 * time.Second  // between two signs of life
	silence   = 15 * time.Second // without one a rank is taken for dead
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
	in   *json.Decoder
	mu   sync.Mutex // of out
	out  *json.Encoder
	rank int
	left bool // guarded by meeting's
}

func newPeer(c net.Conn) *peer {
	return &peer{Conn: c, in: json.NewDecoder(c), out: json.NewEncoder(c)}
}

func (p *peer) send(m message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.SetWriteDeadline(time.Now().Add(silence))
	return p.out.Encode(m)
}

// meeting is rank 0's connections to all, or another's to rank 0.
type meeting struct {
	Place
	peers []*peer

	mu     sync.Mutex
	left   map[int]time.Time
	err    error
	over   chan struct{} // closed with err
	ending chan struct{}
	gone   sync.WaitGroup // listeners
}

// meet brings all ranks together. makeID is called on rank 0, and all get what it gives.
func meet(p Place, makeID func() ([]byte, error)) (m *meeting, id []byte, err error) {
	m = &meeting{Place: p, left: map[int]time.Time{}, over: make(chan struct{}), ending: make(chan struct{})}
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

// receive is rank 0's: it waits for all others.
func (m *meeting) receive() error {
	if m.Size == 1 {
		return nil
	}
	_, port, err := net.SplitHostPort(m.Address)
	if err != nil {
		return fmt.Errorf("nccl: %w", err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", port))
	if err != nil {
		return fmt.Errorf("nccl: waiting for the other ranks: %w", err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	came := map[int]bool{}
	var wrong error // of which all are told that come in a while
	for len(m.peers) < m.Size-1 {
		c, err := l.Accept()
		if wrong != nil && err != nil {
			return wrong
		}
		if err != nil {
			return fmt.Errorf("nccl: found %d of %d ranks in %v: need all: %w", len(m.peers)+1, m.Size, patience, err)
		}
		p := newPeer(c)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		var hello message
		if err := p.in.Decode(&hello); err != nil || subtle.ConstantTimeCompare([]byte(hello.Token), []byte(m.Token)) == 0 {
			c.Close() // a stranger
			continue
		}
		m.peers = append(m.peers, p)
		p.rank = hello.Rank
		if wrong == nil && (hello.Size != m.Size || hello.Rank < 1 || hello.Rank >= m.Size || came[hello.Rank]) {
			wrong = fmt.Errorf("nccl: rank 0 of %d met rank %d of %d: need each of 1 to %d, once", m.Size, hello.Rank, hello.Size, m.Size-1)
			l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second))
		}
		came[hello.Rank] = true
	}
	return wrong
}

// call is another rank's: it calls rank 0 until that is there.
func (m *meeting) call() ([]byte, error) {
	var c net.Conn
	var err error
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if c, err = net.DialTimeout("tcp", m.Address, 5*time.Second); err == nil {
			break
		}
		if time.Since(start) > patience {
			return nil, fmt.Errorf("nccl: calling rank 0: %w", err)
		}
	}
	p := newPeer(c)
	m.peers = []*peer{p}
	if err := p.send(message{Token: m.Token, Rank: m.Rank, Size: m.Size}); err != nil {
		return nil, fmt.Errorf("nccl: calling rank 0: %w", err)
	}
	c.SetReadDeadline(time.Now().Add(patience + 5*time.Second))
	var reply message
	switch err := p.in.Decode(&reply); {
	case err != nil:
		return nil, fmt.Errorf("nccl: rank 0 at %s does not answer: need the same token on every rank: %w", m.Address, err)
	case reply.Fail != "":
		return nil, errors.New(reply.Fail)
	}
	return reply.ID, nil
}

// listen hears what a rank says, and rank 0 passes it on.
func (m *meeting) listen(p *peer) {
	for {
		p.SetReadDeadline(time.Now().Add(silence))
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
		case <-time.After(heartbeat):
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

// leave says goodbye, and waits for the others' for a while.
func (m *meeting) leave() {
	m.tell(message{Rank: m.Rank, Bye: true})
	for start := time.Now(); time.Since(start) < 3*time.Second; time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
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
