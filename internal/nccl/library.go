// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"structs"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/dl"
)

// library is the calls of NCCL that are made. None of them adds.
type library interface {
	uniqueID() ([]byte, error)
	open(size int, id []byte, rank int) (comm, error)
	// group has all sends and receives that do asks for happen at once.
	group(do func() error) error
	send(c comm, at driver.Pointer, n, peer int, s driver.Stream) error
	receive(c comm, at driver.Pointer, n, peer int, s driver.Stream) error
	failed(c comm) error // what went wrong meanwhile
	abort(c comm) error
	close(c comm) error
}

// comm is NCCL's communicator.
type comm uintptr

// uniqueID is ncclUniqueId, which is passed by value.
type uniqueID struct {
	_    structs.HostLayout
	data [128]byte
}

const asBytes = 1 // ncclUint8

// A call is a function of the library, by its place in symbols.
type call int

const (
	getUniqueID call = iota
	groupStart
	groupEnd
	ncclSend
	ncclRecv
	getAsyncError
	commAbort
	commDestroy
	getErrorString
	calls
)

var symbols = [calls]string{"ncclGetUniqueId", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "ncclRecv", "ncclCommGetAsyncError",
	"ncclCommAbort", "ncclCommDestroy", "ncclGetErrorString"}

// libraryName is what the library is called where Env names no other.
const libraryName = "libnccl.so.2"

// ErrNoLibrary says that NCCL is not where it was looked for.
var ErrNoLibrary = errors.New("nccl: no library")

// shared is the library of the machine.
type shared struct {
	name      string
	functions [calls]uintptr
	init      func(c *comm, size int32, id uniqueID, rank int32) int32 // ncclCommInitRank
}

func load() (*shared, error) {
	name := cmp.Or(os.Getenv(Env), libraryName)
	handle, err := dl.Open(name, false)
	if err != nil {
		return nil, fmt.Errorf("%w: found no %s: need NCCL 2.7 or later, as its package or PyTorch installs it, or its path in %s: %w",
			ErrNoLibrary, name, Env, err)
	}
	return bind(name, handle)
}

func bind(name string, handle uintptr) (*shared, error) {
	l := &shared{name: name}
	for c, symbol := range symbols {
		var err error
		if l.functions[c], err = dl.Symbol(handle, symbol); err != nil {
			return nil, fmt.Errorf("nccl: %s has no %s: need NCCL 2.7 or later", l.name, symbol)
		}
	}
	init, err := dl.Symbol(handle, "ncclCommInitRank")
	if err != nil {
		return nil, fmt.Errorf("nccl: %s has no ncclCommInitRank: need NCCL 2.7 or later", l.name)
	}
	purego.RegisterFunc(&l.init, init)
	return l, nil
}

// do makes a call. Arguments that are addresses stay alive through it.
//
//go:uintptrescapes
func (l *shared) do(doing string, c call, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.functions[c], args...)
	return l.result(doing, int32(r))
}

func (l *shared) result(doing string, code int32) error {
	if code == 0 {
		return nil
	}
	text, _, _ := purego.SyscallN(l.functions[getErrorString], uintptr(code))
	return &Error{doing, fmt.Sprintf("%s (%d)", textAt(text), code)}
}

// textAt is the C text at an address.
func textAt(p uintptr) string {
	if p == 0 {
		return "an error without a name"
	}
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}

func (l *shared) uniqueID() ([]byte, error) {
	id := new(uniqueID)
	err := l.do("making a unique id", getUniqueID, uintptr(unsafe.Pointer(id)))
	return id.data[:], err
}

func (l *shared) open(size int, id []byte, rank int) (comm, error) {
	c, u := new(comm), uniqueID{}
	copy(u.data[:], id)
	err := l.result("joining the communicator", l.init(c, int32(size), u, int32(rank)))
	return *c, err
}

func (l *shared) group(do func() error) error {
	if err := l.do("beginning a group", groupStart); err != nil {
		return err
	}
	return errors.Join(do(), l.do("running a group", groupEnd))
}

func (l *shared) send(c comm, at driver.Pointer, n, peer int, s driver.Stream) error {
	return l.do(fmt.Sprintf("sending %d bytes to rank %d", n, peer), ncclSend, uintptr(at), uintptr(n), asBytes, uintptr(peer), uintptr(c), uintptr(s))
}

func (l *shared) receive(c comm, at driver.Pointer, n, peer int, s driver.Stream) error {
	return l.do(fmt.Sprintf("receiving %d bytes from rank %d", n, peer), ncclRecv, uintptr(at), uintptr(n), asBytes, uintptr(peer), uintptr(c), uintptr(s))
}

func (l *shared) failed(c comm) error {
	code := new(int32)
	if err := l.do("asking for errors", getAsyncError, uintptr(c), uintptr(unsafe.Pointer(code))); err != nil {
		return err
	}
	const inProgress = 7
	if *code == inProgress {
		return nil
	}
	return l.result("communicating", *code)
}

func (l *shared) abort(c comm) error { return l.do("aborting the communicator", commAbort, uintptr(c)) }
func (l *shared) close(c comm) error {
	return l.do("leaving the communicator", commDestroy, uintptr(c))
}
