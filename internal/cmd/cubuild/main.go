// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Cubuild compiles the kernels of internal/cuda/kernels into internal/cuda/image. It is the only place that knows nvcc's
// flags. Warnings and spilled registers are errors.
//
//	go run ./internal/cmd/cubuild            compile, and write the image, image.lock and the table of kernels
//	go run ./internal/cmd/cubuild -check     compile, and say whether the image there is the same to the byte
//
// nvcc is -nvcc, $SAMEBIT_NVCC, or the one on the PATH. Without CUDA's toolkit:
//
//	python3 -m venv /tmp/nvcc && /tmp/nvcc/bin/pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' \
//	    'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*'
//	export SAMEBIT_NVCC=/tmp/nvcc/lib/python3*/site-packages/nvidia/cu13/bin/nvcc
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/samebit/samebit/internal/cuda/image"
)

// flags are nvcc's: IEEE arithmetic throughout, nothing fused, subnormals kept (R0).
const flags = "-cubin -gencode=arch=compute_90a,code=sm_90a -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true" +
	" -Werror all-warnings -Xptxas -v"

func main() {
	nvcc := flag.String("nvcc", cmp.Or(os.Getenv("SAMEBIT_NVCC"), "nvcc"), "the compiler")
	dir := flag.String("dir", "", "internal/cuda (default: found from the working directory)")
	check := flag.Bool("check", false, "compare with the image there instead of writing it")
	flag.Parse()
	if err := run(*nvcc, *dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "cubuild:", err)
		os.Exit(1)
	}
}

func run(nvcc, dir string, check bool) error {
	dir, err := findDir(dir)
	if err != nil {
		return err
	}
	kernels, to := filepath.Join(dir, "kernels"), filepath.Join(dir, "image")
	generated, path := []byte(wgmma()), filepath.Join(kernels, "wgmma_gen.cuh")
	if have, _ := os.ReadFile(path); !bytes.Equal(have, generated) {
		if check {
			return fmt.Errorf("%s is not what cubuild writes", path)
		}
		if err := os.WriteFile(path, generated, 0o666); err != nil {
			return err
		}
	}
	lock := image.Lock{Flags: flags}
	if lock.Compiler, err = version(nvcc); err != nil {
		return err
	}
	if lock.Digest, err = image.Digest(os.DirFS(kernels), flags); err != nil {
		return err
	}
	cubin, err := compile(nvcc, kernels, lock.Digest)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(cubin)
	lock.Cubin = hex.EncodeToString(sum[:])
	names, err := image.Symbols(cubin)
	if err != nil {
		return err
	}
	files := map[string][]byte{"layer_sm90a.cubin": cubin, "image.lock": []byte(lock.String()), "image_gen.go": table(names)}
	for name, data := range files {
		path := filepath.Join(to, name)
		if !check {
			if err := os.WriteFile(path, data, 0o666); err != nil {
				return err
			}
			continue
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, data) {
			return fmt.Errorf("%s is not what %s makes of the sources (%v)", path, lock.Compiler, err)
		}
	}
	return nil
}

// findDir finds internal/cuda above or below the working directory.
func findDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	for at, _ := os.Getwd(); ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "internal/cuda/kernels")); err == nil {
			return filepath.Join(at, "internal/cuda"), nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no internal/cuda/kernels at or above the working directory: need -dir")
		}
	}
}

// version is nvcc's own name for itself.
func version(nvcc string) (string, error) {
	out, err := exec.Command(nvcc, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", nvcc, err)
	}
	found := regexp.MustCompile(`V(\d+\.\d+\.\d+)`).FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("%s --version: no version in %q", nvcc, out)
	}
	return "nvcc " + string(found[1]), nil
}

// spilled finds ptxas's words on registers in memory.
var spilled = regexp.MustCompile(`[1-9]\d* bytes (stack frame|spill stores|spill loads)`)

// compile runs nvcc in the kernels' folder, so that no path of this machine can get into the image.
func compile(nvcc, kernels, digest string) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "cubuild")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "layer.cubin")
	args := append(strings.Fields(flags), `-DSAMEBIT_DIGEST="`+digest+`"`, "-o", out, "layer.cu")
	command := exec.Command(nvcc, args...)
	command.Dir = kernels
	report, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", nvcc, err, report)
	}
	kernel := ""
	for line := range strings.Lines(string(report)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "ptxas info    : Function properties for "); ok {
			kernel = name
		}
		if strings.Contains(line, "warning") || spilled.MatchString(line) {
			return nil, fmt.Errorf("%s: %s", kernel, line)
		}
		if strings.Contains(line, "Used ") {
			fmt.Printf("%-36s %s\n", kernel, strings.TrimPrefix(line, "ptxas info    : "))
		}
	}
	return os.ReadFile(out)
}

// table is the Go table of the kernels.
func table(names []string) []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, "// Code generated by cubuild; DO NOT EDIT.\n// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0\n\n")
	fmt.Fprint(&b, "package image\n\n// The image's kernels, by their place in Kernels.\nconst (\n")
	for i, name := range names {
		iota := ""
		if i == 0 {
			iota = " = iota"
		}
		fmt.Fprintf(&b, "%s%s\n", goName(name), iota)
	}
	fmt.Fprint(&b, ")\n\n// Kernels are the names, sorted.\nvar Kernels = [...]string{\n")
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %q,\n", goName(name), name)
	}
	fmt.Fprint(&b, "}\n")
	text, err := format.Source(b.Bytes())
	if err != nil {
		panic(err) // the names are C's
	}
	return text
}

// goName is a kernel's name as Go writes names.
func goName(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
