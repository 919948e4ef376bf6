// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/patience"
	"github.com/samebit/samebit/parallel"
)

// fakeWire is what the fakes of a world share: bytes under way, by sender and receiver.
type fakeWire struct {
	id    []byte
	opens sync.WaitGroup // of all ranks
	boxes map[[2]int]chan []byte
	mu    sync.Mutex
}

func (w *fakeWire) box(from, to int) chan []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]int{from, to}
	if w.boxes[key] == nil {
		w.boxes[key] = make(chan []byte, 1)
	}
	return w.boxes[key]
}

// fake is NCCL for one rank, on a fake GPU whose memory is the host's. Its receipts happen when the stream is waited for.
type fake struct {
	wire    *fakeWire
	rank    int
	mu      sync.Mutex // of calls, which an abort may come between
	calls   []string
	pending []func() error
	ended   chan struct{}
	failing string
}

func (f *fake) note(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls = append(f.calls, name); f.failing == name {
		return &Error{name, "out of order (5)"}
	}
	return nil
}

func (f *fake) uniqueID() ([]byte, error) { return f.wire.id, f.note("id") }

func (f *fake) open(size int, id []byte, rank int) (comm, error) {
	if f.rank = rank; !bytes.Equal(id, f.wire.id) {
		return 0, errors.New("another id")
	}
	if err := f.note("open"); err != nil {
		return 0, err
	}
	f.wire.opens.Done()
	f.wire.opens.Wait() // for all ranks, for ever if need be
	return 7, nil
}

func (f *fake) group(do func() error) error {
	if err := f.note("group"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	for _, p := range f.pending {
		if err := p(); err != nil {
			return err
		}
	}
	f.pending = nil
	return nil
}

func memoryAt(at driver.Pointer, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

func (f *fake) send(_ comm, at driver.Pointer, n, peer int, _ driver.Stream) error {
	f.wire.box(f.rank, peer) <- bytes.Clone(memoryAt(at, n))
	return f.note("send")
}

func (f *fake) receive(_ comm, at driver.Pointer, n, peer int, _ driver.Stream) error {
	f.pending = append(f.pending, func() error {
		select {
		case data := <-f.wire.box(peer, f.rank):
			if len(data) != n {
				return fmt.Errorf("%d bytes where %d were due", len(data), n)
			}
			copy(memoryAt(at, n), data)
			return nil
		case <-f.ended:
			return errors.New("aborted")
		}
	})
	return f.note("receive")
}

func (f *fake) failed(comm) error { return nil }
func (f *fake) abort(comm) error  { return f.note("abort") }
func (f *fake) close(comm) error  { return f.note("close") }

// short are limits that can be waited for.
var short = patience.Limits{Call: 2 * time.Second, Meet: 2 * time.Second, Silence: 2 * time.Second, Heartbeat: 200 * time.Millisecond}

// worlds opens n ranks on fakes, and runs do on each.
func worlds(t *testing.T, n int, change func(*Place, *fake), do func(w *World) error) (errs []error, fakes []*fake) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	wire := &fakeWire{id: bytes.Repeat([]byte{3, 1, 4}, 43)[:128], boxes: map[[2]int]chan []byte{}}
	wire.opens.Add(n)
	errs = make([]error, n)
	var ranks sync.WaitGroup
	for i := range n {
		f := &fake{wire: wire, ended: make(chan struct{})}
		fakes = append(fakes, f)
		ranks.Go(func() {
			p := Place{Rank: i, Size: n, Address: address, Token: "a word"}
			if change != nil {
				change(&p, f)
			}
			machine := &driver.Fake{}
			gpu, err := driver.OpenFake(machine)
			if err != nil {
				errs[i] = err
				return
			}
			w, err := openOn(p, short, gpu, f)
			if err != nil {
				errs[i] = err
				return
			}
			go func() { // as the GPU's stream, which an abort ends
				<-w.over
				close(f.ended)
			}()
			err = do(w)
			if e := w.Close(); err == nil {
				err = e
			}
			if errs[i] = err; err == nil && machine.Left() > 0 {
				errs[i] = fmt.Errorf("%d allocations left", machine.Left())
			}
		})
	}
	ranks.Wait()
	return errs, fakes
}

// Ranks exchange bytes of uneven sizes, and NCCL is asked for nothing but sends and receipts.
func TestExchange(t *testing.T) {
	for n := 1; n <= 5; n++ {
		errs, fakes := worlds(t, n, nil, func(w *World) error {
			g := parallel.NewGroup(w)
			for round := range 5 {
				send, recv := make([][]byte, n), make([][]byte, n)
				for r := range n {
					send[r] = bytes.Repeat([]byte{byte(16*g.Rank() + r)}, (g.Rank()*3+r*round)%50)
					recv[r] = make([]byte, (r*3+g.Rank()*round)%50)
				}
				if err := g.AllToAll(recv, send); err != nil {
					return err
				}
				for r := range n {
					if want := bytes.Repeat([]byte{byte(16*r + g.Rank())}, len(recv[r])); !bytes.Equal(recv[r], want) {
						return fmt.Errorf("rank %d from %d: %x, want %x", g.Rank(), r, recv[r], want)
					}
				}
			}
			_, err := parallel.Join(g, parallel.Grid{TP: 1, EP: n})
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
		for i, f := range fakes {
			if last := f.calls[len(f.calls)-1]; last != "close" {
				t.Errorf("rank %d of %d: the last call is %s: need close", i, n, last)
			}
		}
	}
}

// Whatever goes wrong on one rank ends all of them with the reason.
func TestEnds(t *testing.T) {
	barrier := func(w *World) error { return parallel.NewGroup(w).Barrier() }
	for _, c := range []struct {
		name   string
		change func(*Place, *fake)
		do     func(w *World) error
		want   string
	}{
		{"abort", nil, func(w *World) error {
			if w.Rank() == 2 {
				w.Abort(errors.New("out of memory"))
			}
			return barrier(w)
		}, "rank 2: out of memory"},
		{"a call that fails", func(p *Place, f *fake) {
			if p.Rank == 1 {
				f.failing = "group"
			}
		}, barrier, "rank 1: nccl: group: out of order (5)"},
		{"a communicator that fails", func(p *Place, f *fake) {
			if p.Rank == 2 {
				f.failing = "open"
			}
		}, barrier, "nccl: open: out of order (5)"},
		{"a rank that does not call", nil, func(w *World) error {
			if w.Rank() == 1 {
				<-w.over
			}
			return barrier(w)
		}, "an exchange is not over in 2s, though all ranks live"},
		{"another token", func(p *Place, _ *fake) {
			if p.Rank == 2 {
				p.Token = "another word"
			}
		}, barrier, "another token"},
		{"a rank that leaves", nil, func(w *World) error {
			if w.Rank() == 1 {
				return errors.New("rank 1 has left")
			}
			return barrier(w)
		}, "rank 1 has left"},
		{"a rank that is gone", nil, func(w *World) error {
			if w.Rank() == 1 {
				for _, p := range w.peers {
					p.Close()
				}
				<-w.over
				return w.failure()
			}
			return barrier(w)
		}, "is gone, or stands still"},
		{"another number of ranks", func(p *Place, _ *fake) {
			if p.Rank == 2 {
				p.Size = 4
			}
		}, barrier, "rank 0 of 3 met rank 2 of 4"},
		{"one rank twice", func(p *Place, _ *fake) {
			if p.Rank == 2 {
				p.Rank = 1
			}
		}, barrier, "met rank 1 of 3: need each of 1 to 2, once"},
	} {
		start := time.Now()
		errs, _ := worlds(t, 3, c.change, c.do)
		for i, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: rank %d: error %v, want %q", c.name, i, err, c.want)
			}
		}
		if !strings.Contains(errors.Join(errs...).Error(), c.want) {
			t.Errorf("%s: no rank has %q", c.name, c.want)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: took %v", c.name, d)
		}
	}
}

// A stranger without the token is sent away, and the ranks meet all the same.
func TestStranger(t *testing.T) {
	var once sync.Once
	errs, _ := worlds(t, 2, func(p *Place, _ *fake) {
		if p.Rank == 1 {
			once.Do(func() {
				stranger := &meeting{Place: Place{Rank: 1, Size: 2, Address: p.Address, Token: "another word"}, limits: short}
				if _, err := stranger.call(); err == nil || !strings.Contains(err.Error(), "need the same token") {
					t.Errorf("the stranger's error is %v", err)
				}
			})
		}
	}, func(w *World) error { return parallel.NewGroup(w).Barrier() })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Callers that say nothing, or too much, hold up nobody; and rank 0 listens at its address, and nowhere else.
func TestCallers(t *testing.T) {
	var callers sync.WaitGroup
	errs, _ := worlds(t, 2, func(p *Place, _ *fake) {
		if p.Rank == 0 {
			return
		}
		for i := range 20 {
			c, err := net.Dial("tcp", p.Address)
			for ; err != nil; c, err = net.Dial("tcp", p.Address) {
				time.Sleep(10 * time.Millisecond)
			}
			callers.Go(func() {
				defer c.Close()
				if i == 0 {
					n, err := c.Write([]byte(`{"token": "` + strings.Repeat("x", 32<<20)))
					if err == nil {
						t.Errorf("rank 0 took %d bytes of a stranger", n)
					}
				}
				c.Read(make([]byte, 1)) // until it is sent away
			})
		}
		_, port, _ := net.SplitHostPort(p.Address)
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.2", port)); err == nil {
			c.Close()
			t.Errorf("rank 0 is told %s, and listens at 127.0.0.2 too", p.Address)
		}
	}, func(w *World) error { return parallel.NewGroup(w).Barrier() })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	callers.Wait()
}

// Rank 0 may leave long before the others, and still passes on what these say.
func TestLeavesFirst(t *testing.T) {
	errs, _ := worlds(t, 3, nil, func(w *World) error {
		g := parallel.NewGroup(w)
		if err := g.Barrier(); err != nil || w.Rank() == 0 {
			return err
		}
		time.Sleep(parting + time.Second)
		if w.Rank() == 1 {
			w.Abort(errors.New("out of memory"))
		}
		return g.Sub([]int{1, 2}).Barrier()
	})
	for i, err := range errs[1:] {
		if err == nil || !strings.Contains(err.Error(), "rank 1: out of memory") {
			t.Errorf("rank %d: error %v, want rank 1's", i+1, err)
		}
	}
}

// A process that was stopped for a while has missed nobody.
func TestSuspended(t *testing.T) {
	errs, _ := worlds(t, 2, nil, func(w *World) error {
		g := parallel.NewGroup(w)
		if err := g.Barrier(); err != nil {
			return err
		}
		if w.Rank() == 0 {
			stop := fmt.Sprintf("kill -STOP %d; sleep %g; kill -CONT %[1]d", os.Getpid(), 2*short.Silence.Seconds())
			if err := exec.Command("sh", "-c", stop).Run(); err != nil {
				return err
			}
		}
		return g.Barrier()
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestFromEnvironment(t *testing.T) {
	names := []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "SLURM_NTASKS",
		"SLURM_LOCALID", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID", "SAMEBIT_PORT", "SAMEBIT_TOKEN"}
	for _, c := range []struct {
		env  string
		want Place
		err  string
	}{
		{"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=10.0.0.1 MASTER_PORT=29400 TORCHELASTIC_RUN_ID=job", Place{3, 8, 1, 0, "10.0.0.1:29401", "job"}, ""},
		{"SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=2 SLURM_LAUNCH_NODE_IPADDR=10.0.0.2 SLURM_JOB_ID=77", Place{2, 4, 2, 0, "10.0.0.2:29501", "77"}, ""},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=::1 SAMEBIT_PORT=4000 SAMEBIT_TOKEN=t SLURM_JOB_ID=77", Place{0, 2, 0, 0, "[::1]:4000", "t"}, ""},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", Place{}, "or SAMEBIT_TOKEN"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a TORCHELASTIC_RUN_ID=none", Place{}, "need torchrun's --standalone"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=77", Place{0, 2, 0, 0, "a:29501", "77"}, ""},
		{"RANK=x WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a SAMEBIT_TOKEN=t", Place{}, `found RANK="x"`},
		{"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a SAMEBIT_TOKEN=t", Place{}, "found rank 2 of 2"},
		{"", Place{}, "found none of [RANK SLURM_PROCID]"},
	} {
		for _, name := range names {
			t.Setenv(name, "")
		}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}
		p, err := FromEnvironment()
		if c.err == "" && (err != nil || p != c.want) {
			t.Errorf("%s: %+v, %v: want %+v", c.env, p, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.env, err, c.err)
		}
	}
}
