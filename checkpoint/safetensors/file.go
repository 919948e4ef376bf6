// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"maps"
	"os"
	"unsafe"
)

// File is a file whose header has been read and found right. It is safe for concurrent use, except Close.
type File struct {
	path     string
	data     []byte
	metadata map[string]string
	tensors  []Tensor // by offset
	index    map[string]int

	file *os.File // nil where the data is not a map
}

// Open maps the file at path, read-only, and reads its header. The error names the file, and the tensor if it is about one.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := open(path, file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

func open(path string, file *os.File) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: found %s: need a regular file", path, info.Mode().Type())
	}
	if info.Size() < lengthSize { // an empty file cannot be mapped
		return Parse(path, make([]byte, info.Size()))
	}
	data, err := mapFile(file, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: map: %w", path, err)
	}
	f, err := Parse(path, data)
	if err != nil {
		unmap(data)
		return nil, err
	}
	f.file = file
	return f, nil
}

// Names are the tensors' names, in the order of their data in the file.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i := range f.tensors {
		names[i] = f.tensors[i].Name
	}
	return names
}

// Tensor gives the tensor of that name, and whether there is one. Its data lives until Close.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Metadata is a copy of the header's __metadata__; nil where it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Path is the name that Open or Parse was given.
func (f *File) Path() string { return f.path }

// Check says whether the file still has the size that it had when it was mapped. Bytes between a shortened file's end and the
// end of its last page read as zero without any fault, so a reader that must be sure asks once it is done.
func (f *File) Check() error {
	if f.file == nil {
		return nil
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(len(f.data)) {
		return fmt.Errorf("%s: found %d bytes: need %d, as many as when it was opened; it changed under the map",
			f.path, info.Size(), len(f.data))
	}
	return nil
}

// Evict lets the memory of data go, if it lies in the file's map, and reports whether it does. The data stays readable: it
// comes back from the file.
func (f *File) Evict(data []byte) bool {
	if f.file == nil || len(data) == 0 || len(f.data) == 0 {
		return false
	}
	from := int64(uintptr(unsafe.Pointer(&data[0]))) - int64(uintptr(unsafe.Pointer(&f.data[0])))
	if from < 0 || from+int64(len(data)) > int64(len(f.data)) {
		return false
	}
	page := int64(os.Getpagesize()) // a page that is shared with a neighbour stays
	first, last := (from+page-1)/page*page, (from+int64(len(data)))/page*page
	if first < last {
		dontNeed(f.data[first:last])
	}
	return true
}

// Close releases the map: every slice that came from it is dead. Closing twice is harmless.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := unmap(f.data)
	if closeErr := f.file.Close(); err == nil {
		err = closeErr
	}
	*f = File{path: f.path}
	return err
}
