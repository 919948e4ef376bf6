// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rsc.io/script"
	"rsc.io/script/scripttest"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// asProgram is set for the test binary to be the program.
const asProgram = "SAMEBIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// TestScripts runs testdata/script/*.txt. Beyond the usual commands a script has samebit, status, tensors, fuse and ls.
func TestScripts(t *testing.T) {
	engine := script.NewEngine()
	engine.Cmds = scripttest.DefaultCmds()
	engine.Conds = scripttest.DefaultConds()
	engine.Cmds["samebit"] = script.Command(script.CmdUsage{Summary: "run the program, which must succeed", Args: "args..."},
		func(s *script.State, args ...string) (script.WaitFunc, error) { return runProgram(s, 0, args) })
	engine.Cmds["status"] = script.Command(script.CmdUsage{Summary: "run the program, which must exit so", Args: "status args..."},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			want, err := strconv.Atoi(args[0])
			if err != nil {
				return nil, err
			}
			return runProgram(s, want, args[1:])
		})
	engine.Cmds["tensors"] = script.Command(script.CmdUsage{Summary: "write a file of tensors", Args: "file name:DTYPE:2x3=1,0.5*4..."}, writeTensors)
	engine.Cmds["fuse"] = script.Command(script.CmdUsage{Summary: "write the fused twin of a checkpoint's layer", Args: "src dst layer"},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			layer, err := strconv.Atoi(args[2])
			if err != nil {
				return nil, err
			}
			return nil, testgen.Fuse(os.DirFS(s.Path(args[0])), s.Path(args[1]), layer)
		})
	engine.Cmds["ls"] = script.Command(script.CmdUsage{Summary: "list a folder's files, hidden ones too", Args: "dir"},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			entries, err := os.ReadDir(s.Path(args[0]))
			var names strings.Builder
			for _, e := range entries {
				fmt.Fprintln(&names, e.Name())
			}
			return func(*script.State) (string, string, error) { return names.String(), "", err }, nil
		})
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), asProgram+"=1", "CKPT="+filepath.Join(root, "checkpoint", "testdata"),
		"GOLDEN="+filepath.Join(root, "contract", "testdata"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel) // and not a defer: the scripts run in parallel, after this function
	scripttest.Test(t, ctx, engine, env, "testdata/script/*.txt")
}

// runProgram runs the program; its exit status must be the wanted one.
func runProgram(s *script.State, want int, args []string) (script.WaitFunc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(s.Context(), self, args...)
	cmd.Dir, cmd.Env = s.Getwd(), s.Environ()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	err = nil
	if got := cmd.ProcessState.ExitCode(); got != want {
		err = fmt.Errorf("exit status %d: need %d", got, want)
	}
	return func(*script.State) (string, string, error) { return stdout.String(), stderr.String(), err }, nil
}

// writeTensors writes a file of tensors, each such as x:BF16:2x3=1,0.5*4: a value as often as the star says, and the list over
// again until the tensor is full. No values are zeros.
func writeTensors(s *script.State, args ...string) (script.WaitFunc, error) {
	var outs []safetensors.Out
	for _, spec := range args[1:] {
		out, err := tensorOf(spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec, err)
		}
		outs = append(outs, out)
	}
	return nil, safetensors.Write(s.Path(args[0]), outs, nil)
}

func tensorOf(spec string) (out safetensors.Out, err error) {
	kind, list, _ := strings.Cut(spec, "=")
	fields := strings.Split(kind, ":")
	if len(fields) != 3 {
		return out, fmt.Errorf("need name:DTYPE:shape")
	}
	n, shape := 1, []int{}
	for word := range strings.SplitSeq(fields[2], "x") {
		d, err := strconv.Atoi(word)
		if err != nil {
			return out, err
		}
		n, shape = n*d, append(shape, d)
	}
	values := []float64{}
	for word := range strings.SplitSeq(list, ",") {
		if word == "" {
			word = "0"
		}
		value, times, many := strings.Cut(word, "*")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return out, err
		}
		count := 1
		if many {
			if count, err = strconv.Atoi(times); err != nil {
				return out, err
			}
		}
		for range count {
			values = append(values, v)
		}
	}
	switch fields[1] {
	case "BF16":
		return safetensors.New(fields[0], shape, filled(n, values, func(v float64) contract.BF16 { return contract.Round(float32(v)) })), nil
	case "F32":
		return safetensors.New(fields[0], shape, filled(n, values, func(v float64) float32 { return float32(v) })), nil
	case "I32":
		return safetensors.New(fields[0], shape, filled(n, values, func(v float64) int32 { return int32(v) })), nil
	}
	return out, fmt.Errorf("need BF16, F32 or I32")
}

func filled[T any](n int, values []float64, convert func(float64) T) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = convert(values[i%len(values)])
	}
	return v
}
