// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// large is a checkpoint whose writing takes long enough to be stopped.
var large = []string{"synth", "made", "--shape", "qwen3-30b-a3b"}

// start starts the program in dir; shell, where it is not "", is a line of sh that runs before it in its process.
func start(t *testing.T, dir, shell string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	if shell != "" {
		c = exec.Command("/bin/sh", append([]string{"-c", shell + `; exec "$0" "$@"`, os.Args[0]}, args...)...)
	}
	c.Dir, c.Env = dir, append(os.Environ(), asProgram+"=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	return c
}

// waitFor waits until something under dir fits the glob and has so many bytes.
func waitFor(t *testing.T, dir, glob string, bytes int64) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(dir, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Size() >= bytes {
				return
			}
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("no %s of %d bytes in 30 s", glob, bytes)
		}
	}
}

func signalTo(t *testing.T, c *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the program, which must exit so.
func ends(t *testing.T, c *exec.Cmd, status int) {
	t.Helper()
	c.Wait()
	if have := c.ProcessState.ExitCode(); have != status {
		t.Errorf("exit status %d, want %d", have, status)
	}
}

func isEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A program that is stopped in the middle of writing a folder leaves nothing behind, and exits as shells expect.
func TestStopped(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			c := start(t, dir, "", large...)
			waitFor(t, dir, ".*/*", 0)
			signalTo(t, c, signal)
			ends(t, c, 128+int(signal))
			isEmpty(t, dir)
		})
	}
}

// What the program was started to ignore, as by nohup, it goes on ignoring; what it was not, still stops it.
func TestIgnored(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := start(t, dir, "trap '' "+name, large...)
			waitFor(t, dir, ".*/*", 1<<20)
			signalTo(t, c, signal)
			waitFor(t, dir, ".*/*", 32<<20) // it goes on
			signalTo(t, c, syscall.SIGTERM)
			ends(t, c, 128+int(syscall.SIGTERM))
			isEmpty(t, dir)
		})
	}
}

// A program that is stopped in the middle of writing a file, or in a passing folder, leaves nothing behind, either. Both take some 50 ms, so that a
// try may come too late.
func TestStoppedInAFile(t *testing.T) {
	dir := t.TempDir()
	made := start(t, dir, "", "synth", "made", "--shape", "mid", "--inputs", "in.safetensors", "--tokens", "8")
	if ends(t, made, statusOK); t.Failed() {
		return
	}
	for glob, args := range map[string][]string{
		"*out.safetensors*":  {"run", "made", "--layer", "0", "--in", "in.safetensors", "--backward", "--out", "$out/out.safetensors"},
		"samebit-gate-*/*/*": {"gate", "--checkpoint", "made", "--case", "round-trip"},
	} {
		stopped := false
		for try := 0; try < 20 && !stopped; try++ {
			out := t.TempDir()
			c := start(t, dir, "export TMPDIR="+out, strings.Split(strings.ReplaceAll(strings.Join(args, " "), "$out", out), " ")...)
			waitFor(t, out, glob, 0)
			signalTo(t, c, syscall.SIGSTOP) // so that it does not end before the next
			signalTo(t, c, syscall.SIGINT)
			signalTo(t, c, syscall.SIGCONT)
			c.Wait()
			if stopped = c.ProcessState.ExitCode() != statusOK; stopped {
				ends(t, c, 128+int(syscall.SIGINT))
				isEmpty(t, out)
			}
		}
		if !stopped {
			t.Errorf("%s: 20 times it was done before it could be stopped", args[0])
		}
	}
}

// The folder of a report appears with the report.
func TestStoppedGate(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, "", "gate", "--shape", "mid", "--backend", "ref", "--report", filepath.Join("a", "evidence"))
	time.Sleep(300 * time.Millisecond) // into its work, which takes far longer
	signalTo(t, c, syscall.SIGTERM)
	c.Wait()
	if c.ProcessState.ExitCode() == statusOK {
		t.Error("it was done before it was stopped")
	}
	isEmpty(t, dir)
}
