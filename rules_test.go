// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/samebit/samebit"
)

const module = "github.com/samebit/samebit"

// layers are the packages from the bottom up: a package imports only what stands before it. A name stands for the packages
// below it too.
var layers = []string{
	"contract",
	"backend",
	"internal/tidy", "internal/dl", "internal/host", "internal/patience", "internal/ref", "internal/cpu", "internal/cuda",
	"internal/mpi", "internal/nccl", "parallel",
	"checkpoint/internal", "checkpoint/safetensors", "checkpoint/testdata", "checkpoint",
	"internal/bits",
	"internal/testgen",
	"", // samebit itself
	"contract/contracttest", "contract/testdata",
	"gate",
	"bench",
	"internal/ui", "internal/cli",
	"cmd", "internal/cmd",
}

// sourceFiles calls do for every file of these kinds that the repository holds.
func sourceFiles(t *testing.T, kinds string, do func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(path) > 1 && strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci":
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(strings.Fields(kinds), filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		do(filepath.ToSlash(path), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLicenceLines(t *testing.T) {
	sourceFiles(t, ".go .py .s .cu .cuh .h .c", func(path string, text []byte) {
		head, _, _ := strings.Cut(string(text), "\n")
		generated := strings.HasPrefix(head, "// Code generated") && strings.HasSuffix(head, "DO NOT EDIT.")
		if !generated && !strings.Contains(head, "Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0") {
			t.Errorf("%s: the first line is %q: need the copyright and licence line", path, head)
		}
	})
}

func TestFilesAreSmall(t *testing.T) {
	const most = 500
	sourceFiles(t, ".go .cu .cuh", func(path string, text []byte) {
		if n := strings.Count(string(text), "\n"); n > most && !strings.Contains(string(text), "DO NOT EDIT") {
			t.Errorf("%s: %d lines: need at most %d", path, n, most)
		}
	})
}

func TestImportsPointDownward(t *testing.T) {
	eachPackageFile(t, func(path string, imports []string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		from := rank(t, path, filepath.ToSlash(filepath.Dir(path)))
		for _, i := range imports {
			if name, ours := strings.CutPrefix(i, module); ours {
				if to := rank(t, path, strings.TrimPrefix(name, "/")); to > from {
					t.Errorf("%s imports %s, which stands above it", path, i)
				}
			}
		}
	})
}

// rank is a package's place among the layers: that of the longest name that it is or lies below.
func rank(t *testing.T, path, pkg string) int {
	t.Helper()
	if pkg == "." {
		pkg = ""
	}
	best, length := -1, -1
	for i, l := range layers {
		if (pkg == l || l != "" && strings.HasPrefix(pkg, l+"/")) && len(l) > length {
			best, length = i, len(l)
		}
	}
	if best < 0 {
		t.Errorf("%s: package %q has no place among the layers of rules_test.go", path, pkg)
	}
	return best
}

func TestContractNeedsTheStandardLibraryAlone(t *testing.T) {
	eachPackageFile(t, func(path string, imports []string) {
		if filepath.Dir(path) != "contract" || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, i := range imports {
			if strings.Contains(i, ".") {
				t.Errorf("%s imports %s: need the standard library alone", path, i)
			}
		}
	})
}

func TestNoCgo(t *testing.T) {
	eachPackageFile(t, func(path string, imports []string) {
		if slices.Contains(imports, "C") && !strings.HasPrefix(path, "bindings/c/") {
			t.Errorf("%s uses cgo, which only bindings/c may", path)
		}
	})
}

// What a layer can be asked for, and how it can run, is found in the README.
func TestReadmeNames(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(text), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	var names []string
	for method := range reflect.TypeFor[*samebit.Layer]().Methods() {
		if strings.HasPrefix(method.Name, "New") {
			names = append(names, method.Name)
		}
	}
	for field := range reflect.TypeFor[samebit.Options]().Fields() {
		names = append(names, field.Name)
	}
	for _, name := range names {
		if !slices.Contains(words, name) {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

func TestLibrariesAreOpenedInOnePlace(t *testing.T) {
	sourceFiles(t, ".go", func(path string, text []byte) {
		if !strings.HasPrefix(path, "internal/dl/") && strings.Contains(string(text), "purego."+"Dl") {
			t.Errorf("%s opens libraries by purego, which loses reasons: need internal/dl", path)
		}
	})
}

func eachPackageFile(t *testing.T, do func(path string, imports []string)) {
	t.Helper()
	sourceFiles(t, ".go", func(path string, text []byte) {
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		var imports []string
		for _, i := range f.Imports {
			name, _ := strconv.Unquote(i.Path.Value)
			imports = append(imports, name)
		}
		do(path, imports)
	})
}

func TestPackagesHaveDocs(t *testing.T) {
	documented := map[string]bool{}
	sourceFiles(t, ".go", func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || f.Doc != nil
	})
	for dir, is := range documented {
		if !is {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}
