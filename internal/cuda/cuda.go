// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
)

func init() { backend.Register("cuda", open) }

// need is what this backend runs on.
const need = "a Hopper GPU (sm_90) whose tensor cores follow the contract's law, and its driver"

func unsupported(have string) error {
	return &backend.UnsupportedError{Backend: "cuda", Need: need, Have: have}
}

// Backend implements backend.Backend on one GPU. All its work is in one stream.
type Backend struct {
	memory
	module  driver.Module
	stages  sync.Mutex // a stage's launches stand together
	last    int        // the kernel that was launched last, if it is known
	folds   map[*fold]struct{}
	kernels [len(image.Kernels)]driver.Function
}

func open(o backend.Options) (backend.Backend, error) {
	gpu, err := driver.Open(o.Device)
	switch {
	case errors.Is(err, driver.ErrNoDriver), errors.Is(err, driver.ErrNoDevice):
		return nil, unsupported(err.Error())
	case err != nil:
		return nil, err
	}
	if err := refused(gpu); err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	b := &Backend{memory: memory{gpu: gpu}, last: unknown}
	if err := b.start(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// refused says why a GPU is none that the kernels are for.
func refused(gpu *driver.Device) error {
	if gpu.Major != 9 || gpu.Minor != 0 {
		return unsupported(fmt.Sprintf("%s (sm_%d%d)", gpu.Name, gpu.Major, gpu.Minor))
	}
	return nil
}

// start loads the kernels, and holds the image and the hardware to what they must be (R14).
func (b *Backend) start() (err error) {
	if b.stream, err = b.gpu.NewStream(); err != nil {
		return err
	}
	if b.module, err = b.gpu.Load(image.Cubin); err != nil {
		return err
	}
	for i, name := range image.Kernels {
		if b.kernels[i], err = b.gpu.Function(b.module, name, mostShared(i)); err != nil {
			return err
		}
	}
	if err := b.checkImage(); err != nil {
		return err
	}
	return b.knownAnswers()
}

// mostShared is the dynamic shared memory that a kernel may be given.
func mostShared(kernel int) int {
	const all = 227 << 10
	switch kernel {
	case image.NumbersTc16Bf16, image.NumbersTc16TurnedBf16, image.PlanOneI32, image.PlanLayI32: // with some of their own
		return 200 << 10
	}
	return all
}

// checkImage reads the digest back from the GPU.
func (b *Backend) checkImage() error {
	lock, err := image.ReadLock()
	if err != nil {
		return err
	}
	at, n, err := b.gpu.Global(b.module, "samebit_digest")
	if err != nil {
		return err
	}
	have := make([]byte, n)
	if err := b.gpu.ToHost(have, at, b.stream); err != nil {
		return err
	}
	if string(have) != lock.Digest+"\x00" {
		return fmt.Errorf("cuda: the image on the GPU has digest %q: need %q of image.lock", have, lock.Digest)
	}
	return nil
}

func (*Backend) Name() string { return "cuda" }

// Device names the GPU and the driver's CUDA version.
func (b *Backend) Device() string {
	return fmt.Sprintf("%s, %d multiprocessors, driver for CUDA %d.%d", b.gpu.Name, b.gpu.Processors, b.gpu.Driver/1000, b.gpu.Driver%1000/10)
}

// Close gives back everything, also what was not freed.
func (b *Backend) Close() error {
	err := b.memory.close()
	if b.module != 0 {
		err = errors.Join(err, b.gpu.Unload(b.module))
	}
	if b.stream != 0 {
		err = errors.Join(err, b.gpu.FreeStream(b.stream))
	}
	return errors.Join(err, b.gpu.Close())
}

// launch starts a kernel with its parameters, after what was launched before. Kernels wait for the one before by themselves; down
// and combine read what is older ahead of that, so they may be early only after the kernels that stand before them in a forward.
func launch[P any](b *Backend, kernel int, grid [3]int, block, shared int, p *P) error {
	early := true
	switch last := stageOf(b.last); stageOf(kernel) {
	case "down":
		early = last == "gate"
	case "combine":
		early = last == "down"
	}
	b.last = kernel
	err := b.gpu.Launch(driver.Launch{Kernel: b.kernels[kernel], Name: image.Kernels[kernel], Grid: grid, Block: block, Shared: shared,
		Early: early}, unsafe.Pointer(p), b.stream)
	if err != nil {
		b.last = unknown
	}
	return err
}

// after says whether what was launched last is one of these kernels, as a kernel's parameter: where it is, what is older may be read before it
// has ended. Nothing may be written until then: memory that was given back is another's in the order of the stream.
func (b *Backend) after(kernels ...int) int32 {
	if slices.Contains(kernels, b.last) {
		return 1
	}
	return 0
}

const unknown = -1 // no kernel's number

// forget has the next kernel come after any.
func (b *Backend) forget() {
	b.stages.Lock()
	defer b.stages.Unlock()
	b.last = unknown
}

// stageOf is the word in the name of a forward's kernel that says what it does for its stage; of others it is the first word.
func stageOf(kernel int) string {
	if kernel == unknown {
		return ""
	}
	words := strings.Split(image.Kernels[kernel], "_")
	if words[0] == "experts" && slices.Contains(words, "fwd") {
		return words[1]
	}
	return words[0]
}
