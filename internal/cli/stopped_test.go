// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A program that is stopped in the middle of writing leaves nothing behind, and exits as shells expect.
func TestStopped(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		dir := t.TempDir()
		c := exec.Command(os.Args[0], "synth", filepath.Join(dir, "made"), "--shape", "qwen3-30b-a3b")
		c.Env = append(os.Environ(), asProgram+"=1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		found := func() []string {
			all, err := filepath.Glob(filepath.Join(dir, ".*", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for begin := time.Now(); len(found()) == 0; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				c.Process.Kill()
				t.Fatal("nothing was written in 30 s")
			}
		}
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if have, want := c.ProcessState.ExitCode(), 128+int(signal); have != want {
			t.Errorf("%v: exit status %d, want %d", signal, have, want)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%v: left %v, %v", signal, left, err)
		}
	}
}
