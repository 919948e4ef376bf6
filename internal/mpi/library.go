// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/samebit/samebit/internal/dl"
)

// A call is a function of the library, by its place in symbols.
type call int

const (
	initThread call = iota
	finalize
	commRank
	commSize
	commSetErrhandler
	isend
	irecv
	improbe
	imrecv
	test
	getCount
	errorString
	libraryVersion
	calls
)

var symbols = [calls]string{"MPI_Init_thread", "MPI_Finalize", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_set_errhandler",
	"MPI_Isend", "MPI_Irecv", "MPI_Improbe", "MPI_Imrecv", "MPI_Test", "MPI_Get_count", "MPI_Error_string", "MPI_Get_library_version"}

// library is a loaded MPI: its functions, and its handles, which are of three kinds: addresses of symbols in Open MPI, numbers in
// MPICH, and small numbers in the standard ABI, as pointers. Requests are 8 bytes at the most, statuses 32.
type library struct {
	functions                 [calls]uintptr
	world, bytes, errorReturn uintptr
	serialized                int32 // MPI_THREAD_SERIALIZED
	name                      string
}

// candidates are where a library is looked for. The launcher's own kind comes first: ranks started by another would each be alone.
func candidates() []string {
	if name := os.Getenv(Env); name != "" {
		return []string{name}
	}
	names := []string{"libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40"}
	if os.Getenv("OMPI_COMM_WORLD_SIZE") != "" {
		names = []string{"libmpi.so.40", "libmpi.so", "libmpi_abi.so.1"}
	}
	return names
}

// load loads the first library that is there.
func load() (*library, error) {
	// Open MPI would take over signals that Go's runtime needs.
	os.Setenv("OMPI_MCA_opal_signal", "")
	var errs []error
	for _, name := range candidates() {
		handle, err := dl.Open(name, true) // Open MPI's plugins look for its symbols
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return bind(name, handle)
	}
	return nil, fmt.Errorf("mpi: found no library: need Open MPI, MPICH or another with the standard ABI, or its path in %s: %w",
		Env, errors.Join(errs...))
}

func bind(name string, handle uintptr) (*library, error) {
	l := &library{name: name}
	for c, symbol := range symbols {
		var err error
		if l.functions[c], err = dl.Symbol(handle, symbol); err != nil {
			return nil, fmt.Errorf("mpi: %s has no %s: need an MPI library", name, symbol)
		}
	}
	openMPI := func(symbol string) uintptr { at, _ := dl.Symbol(handle, symbol); return at }
	switch {
	case strings.Contains(name, "libmpi_abi"):
		l.world, l.bytes, l.errorReturn, l.serialized = 0x101, 0x247, 0x143, 2048
	case openMPI("ompi_mpi_comm_world") != 0:
		l.world, l.bytes, l.errorReturn, l.serialized = openMPI("ompi_mpi_comm_world"), openMPI("ompi_mpi_byte"), openMPI("ompi_mpi_errors_return"), 2
	default:
		l.world, l.bytes, l.errorReturn, l.serialized = 0x44000000, 0x4c00010d, 0x54000001, 2
	}
	return l, nil
}

// do makes a call. Arguments that are addresses stay alive through it.
//
//go:uintptrescapes
func (l *library) do(doing string, c call, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.functions[c], args...)
	if code := int32(r); code != 0 {
		return &Error{doing, l.errorText(code)}
	}
	return nil
}

func (l *library) errorText(code int32) string {
	text, n := make([]byte, 8192), new(int32)
	purego.SyscallN(l.functions[errorString], uintptr(code), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n)))
	return fmt.Sprintf("%s (%d)", cString(text), code)
}

// version is what the library calls itself.
func (l *library) version() string {
	text, n := make([]byte, 8192), new(int32)
	if err := l.do("version", libraryVersion, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n))); err != nil {
		return l.name
	}
	first, _, _ := strings.Cut(cString(text), "\n")
	return strings.TrimSpace(first)
}

func cString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// request is a transfer under way. Its memory is on Go's heap, which does not move, and is kept by the request.
type request struct {
	handle *uintptr
	peer   int
	data   []byte
	recv   bool
	probe  *probe // of a receipt whose message is still to come
}

// probe waits for the message of a receipt, and has its length before a byte of it is written: Open MPI's ranks of one machine copy a
// message that is longer than the memory it is for over what lies behind that.
type probe struct {
	matched bool
	before  *probe // of the piece ahead, which takes its message first
}

const (
	dataTag    = 1
	controlTag = 2
)

// start begins to send or receive data.
func (l *library) start(recv bool, peer, tag int, data []byte) (request, error) {
	r := request{handle: new(uintptr), peer: peer, data: data, recv: recv}
	c, doing := isend, "send"
	if recv {
		c, doing = irecv, "receive"
	}
	return r, l.do(doing, c, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), l.bytes, uintptr(peer), uintptr(tag),
		l.world, uintptr(unsafe.Pointer(r.handle)))
}

// expect begins to receive data, whose message must be as long.
func (l *library) expect(peer int, data []byte, before *probe) request {
	return request{handle: new(uintptr), peer: peer, data: data, recv: true, probe: &probe{before: before}}
}

// match looks for the message of a receipt, and begins to receive it where it is as long as what is due.
func (l *library) match(r request) (n int, err error) {
	if r.probe.before != nil && !r.probe.before.matched {
		return len(r.data), nil
	}
	flag, message, status, count := new(int32), new(uintptr), new([4]uint64), new(int32)
	err = l.do(fmt.Sprintf("receive, rank %d", r.peer), improbe, uintptr(r.peer), dataTag, l.world, uintptr(unsafe.Pointer(flag)),
		uintptr(unsafe.Pointer(message)), uintptr(unsafe.Pointer(status)))
	if err != nil || *flag == 0 {
		return len(r.data), err
	}
	if err := l.do("count", getCount, uintptr(unsafe.Pointer(status)), l.bytes, uintptr(unsafe.Pointer(count))); err != nil || int(*count) != len(r.data) {
		return int(*count), err
	}
	r.probe.matched = true
	return len(r.data), l.do(fmt.Sprintf("receive, rank %d", r.peer), imrecv, uintptr(unsafe.Pointer(unsafe.SliceData(r.data))), uintptr(len(r.data)),
		l.bytes, uintptr(unsafe.Pointer(message)), uintptr(unsafe.Pointer(r.handle)))
}

// done says whether a transfer is over; for a receipt, of how many bytes.
func (l *library) done(r request) (done bool, n int, err error) {
	if r.probe != nil && !r.probe.matched {
		if n, err = l.match(r); err != nil || n != len(r.data) || !r.probe.matched {
			return err == nil && n != len(r.data), n, err
		}
	}
	flag, status, count := new(int32), new([4]uint64), new(int32)
	doing := "send"
	if r.recv {
		doing = "receive"
	}
	err = l.do(fmt.Sprintf("%s, rank %d", doing, r.peer), test, uintptr(unsafe.Pointer(r.handle)), uintptr(unsafe.Pointer(flag)), uintptr(unsafe.Pointer(status)))
	if err != nil || *flag == 0 {
		return false, 0, err
	}
	if r.recv {
		err = l.do("count", getCount, uintptr(unsafe.Pointer(status)), l.bytes, uintptr(unsafe.Pointer(count)))
	}
	return true, int(*count), err
}
