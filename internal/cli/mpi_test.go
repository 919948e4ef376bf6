// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mpirun is the program as n ranks.
func mpirun(t *testing.T, n int, args ...string) *exec.Cmd {
	t.Helper()
	run, err := exec.LookPath("mpirun")
	if err != nil {
		if strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "mpi") {
			t.Fatal("SAMEBIT_REQUIRE names mpi: found no mpirun")
		}
		t.Skip("found no mpirun: need an MPI")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	if openMPI(run) {
		flags = []string{"--allow-run-as-root", "--oversubscribe"}
	}
	cmd := exec.Command(run, append(append(flags, "-np", strconv.Itoa(n), self), args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// endings are what commands print when all is done.
var endings = []string{" 0 failed", "all of ", "of the last case: "}

// output is what the ranks print, and how the launcher ended: nil where the ranks did well and it alone does not end, as some
// versions of Open MPI's do now and then.
func output(cmd *exec.Cmd, limit time.Duration) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	hung := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	done := func(ending string) bool { return strings.Contains(out.String(), ending) }
	if !hung.Stop() && slices.ContainsFunc(endings, done) {
		err = nil
	}
	return out.String(), err
}

func openMPI(run string) bool {
	version, _ := exec.Command(run, "--version").Output()
	return strings.Contains(string(version), "Open")
}

// The gate on processes gives the digests of one process.
func TestGateOnProcesses(t *testing.T) {
	args := []string{"gate", "--shape", "tiny", "--tokens", "16", "--workers", "1"}
	var alone, stderr bytes.Buffer
	if status := Main(args, &alone, &stderr); status != 0 {
		t.Fatalf("exit status %d: %s", status, &stderr)
	}
	for _, grid := range [][]string{nil, {"--tp", "2"}, {"--tp", "3", "--ep", "1"}} {
		n := 4
		if len(grid) > 2 {
			n = 3
		}
		out, err := output(mpirun(t, n, append(args, grid...)...), 2*time.Minute)
		if err != nil {
			t.Fatalf("%v: %v: %s", grid, err, out)
		}
		same := 0
		for line := range strings.Lines(alone.String()) {
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[1] != "pass" || strings.HasPrefix(line, "ranks-") {
				continue
			}
			if same++; !strings.Contains(out, fields[2]) {
				t.Errorf("%v: %s has digest %s in one process, and not here: %s", grid, fields[0], fields[2], out)
			}
		}
		if same < 10 {
			t.Errorf("compared %d digests", same)
		}
	}
}

// A run on processes writes the file of one, and the first process alone writes and prints; a bench times all.
func TestRunAndBenchOnProcesses(t *testing.T) {
	dir, ckpt := t.TempDir(), filepath.Join("..", "..", "checkpoint", "testdata", "qwen3-next-tiny")
	run := func(out string, more ...string) []string {
		return append([]string{"run", ckpt, "--layer", "1", "--in", filepath.Join(ckpt, "layer1-moe-io.safetensors"), "--backward", "--workers", "1",
			"--out", filepath.Join(dir, out)}, more...)
	}
	var stdout, stderr bytes.Buffer
	if status := Main(run("one"), &stdout, &stderr); status != 0 {
		t.Fatalf("exit status %d: %s", status, &stderr)
	}
	out, err := output(mpirun(t, 4, run("four", "--tp", "2")...), time.Minute)
	if err != nil || strings.Count(out, "all of ") != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	one, _ := os.ReadFile(filepath.Join(dir, "one"))
	if four, err := os.ReadFile(filepath.Join(dir, "four")); err != nil || !bytes.Equal(one, four) {
		t.Errorf("%v: %d bytes, not the %d of one process", err, len(four), len(one))
	}
	lines := filepath.Join(dir, "lines")
	out, err = output(mpirun(t, 4, "bench", "--shape", "tiny", "--tokens", "9", "--pass", "forward,forward+backward", "--time", "20ms", "--tp", "2",
		"--workers", "1", "--out", lines), time.Minute)
	text, _ := os.ReadFile(lines)
	if err != nil || strings.Count(out, "tokens/s a rank") != 1 || strings.Count(string(text), "/tp=2/ep=2/pass=") != 2 {
		t.Errorf("%v: %s: %s", err, out, text)
	}
	// What the first rank cannot write ends all.
	start := time.Now()
	out, err = output(mpirun(t, 2, run("no/such/folder")...), 25*time.Second)
	if err == nil || !strings.Contains(out, "cannot be written") || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v: %s", err, time.Since(start), out)
	}
}

// Processes that were told different things all say so.
func TestOtherFlags(t *testing.T) {
	ckpt, dir := filepath.Join("..", "..", "checkpoint", "testdata", "qwen3-next-tiny"), t.TempDir()
	in, other := filepath.Join(ckpt, "layer1-moe-io.safetensors"), filepath.Join(dir, "other.safetensors")
	var stderr bytes.Buffer
	if status := Main([]string{"synth", filepath.Join(dir, "tiny"), "--shape", "tiny", "--inputs", other, "--tokens", "32"}, io.Discard, &stderr); status != 0 {
		t.Fatalf("exit status %d: %s", status, &stderr)
	}
	run := []string{"run", ckpt, "--layer", "1", "--out", filepath.Join(dir, "out"), "--in"}
	for want, two := range map[string][2][]string{
		"need the same inputs on every rank": {append(run[:len(run):len(run)], in), append(run[:len(run):len(run)], other)},
		"need the same flags on every rank":  {{"gate", "--shape", "tiny", "--case", "grid"}, {"gate", "--shape", "tiny", "--case", "padding"}},
		"--count 2":                          {{"bench", "--shape", "tiny", "--count", "5"}, {"bench", "--shape", "tiny", "--count", "2"}},
	} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		out, err := output(mpirun(t, 1, append(append(two[0], ":", "-np", "1", exe), two[1]...)...), 25*time.Second)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s: want %q", err, out, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
			t.Error("a file was written")
		}
	}
}

// What one rank refuses ends all of them, with the reason, and with exit status 2.
func TestRanksRefuse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"gate", "--tp", "3"}, "need 3"},
		{[]string{"gate", "--tp", "2", "--checkpoint", "nofolder"}, "nofolder"},
		{[]string{"gate", "--shape", "tiny", "--tp", "4", "--ep", "2"}, "found 4 ranks: need 8"},
	} {
		start := time.Now()
		out, err := output(mpirun(t, 4, c.args...), 25*time.Second)
		if err == nil || !strings.Contains(out, c.want) || time.Since(start) > 30*time.Second {
			t.Errorf("%v: %v after %v: %s: want %q", c.args, err, time.Since(start), out, c.want)
		}
	}
}

// A rank that is refused before it joins the others ends these, which say what has happened.
func TestRefusedEarly(t *testing.T) {
	cmd := mpirun(t, 1, "gate", "--shape", "tiny", "--tokens", "8")
	if !openMPI(cmd.Path) {
		t.Skip("need Open MPI's way to start two programs")
	}
	program := cmd.Args[len(cmd.Args)-6]
	cmd.Args = append(cmd.Args, ":", "-np", "1", program, "gate", "--tp", "0")
	out, err := output(cmd, 25*time.Second)
	if err == nil || !strings.Contains(out, "--tp 0") || !strings.Contains(out, "stopped by the launcher before all ranks had met") {
		t.Errorf("%v: %s", err, out)
	}
}

// A task of srun without MPI is no program of its own, unless that is asked for.
func TestSlurmWithoutMPI(t *testing.T) {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS", "WORLD_SIZE"} {
		t.Setenv(name, "")
	}
	t.Setenv("SLURM_PROCID", "3")
	t.Setenv("SLURM_STEP_NUM_TASKS", "8")
	args := []string{"gate", "--shape", "tiny", "--tokens", "8", "--workers", "1"}
	var stdout, stderr bytes.Buffer
	if status := Main(args, &stdout, &stderr); status != statusUsage || !strings.Contains(stderr.String(), "task 3 of 8") {
		t.Errorf("exit status %d: %s", status, &stderr)
	}
	if status := Main(append(args, "--over", "local"), &stdout, &stderr); status != statusOK {
		t.Errorf("--over local: exit status %d: %s", status, &stderr)
	}
}

// A process whose launcher has started others that its MPI library does not find is refused.
func TestRanksNotFound(t *testing.T) {
	if !openMPI(mpirun(t, 1).Path) {
		t.Skip("need Open MPI, which starts alone where it finds no others")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, launcher := range [][]string{{"PMI_SIZE=4", "PMI_RANK=0"}, {"PMIX_RANK=3"}, {"PMIX_RANK=0", "SLURM_STEP_NUM_TASKS=2"}} {
		cmd := exec.Command(self, "gate", "--shape", "tiny", "--tokens", "8")
		cmd.Env = append(append(os.Environ(), asProgram+"=1"), launcher...)
		out, err := output(cmd, 25*time.Second)
		if err == nil || !strings.Contains(out, "it is rank 0 of 1: need the launcher's own library") {
			t.Errorf("%v: %v: %s", launcher, err, out)
		}
	}
}

// A rank that is killed in the middle of its work ends the others within 30 seconds, with an exit status and a reason: the launcher
// tells them. One that stands still gives no sign of life.
func TestKilledRank(t *testing.T) {
	t.Run("killed", func(t *testing.T) { stopRank(t, syscall.SIGKILL) })
	if !testing.Short() {
		t.Run("stopped", func(t *testing.T) { stopRank(t, syscall.SIGSTOP) })
	}
}

func stopRank(t *testing.T, signal syscall.Signal) {
	const ranks = 4
	cmd := mpirun(t, ranks, "gate", "--shape", "mid", "--tokens", "1024", "--tp", "2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var working []int
	defer func() {
		for _, pid := range working { // also one that stands still
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	defer cmd.Process.Kill()
	for start := time.Now(); len(working) < ranks; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("found %d ranks at work: need %d: %s", len(working), ranks, &out)
		}
		working = atWork(t, cmd.Process.Pid)
	}
	killed := time.Now()
	if err := syscall.Kill(working[1], signal); err != nil {
		t.Fatal(err)
	}
	for slices.ContainsFunc(working, func(pid int) bool { return pid != working[1] && living(pid) }) {
		if d := time.Since(killed); d > 30*time.Second {
			t.Fatalf("the ranks did not end in %v: %s", d, &out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	ended := time.Since(killed)
	hung := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
	defer hung.Stop()
	if err := cmd.Wait(); err == nil {
		t.Error("exit status 0: need another")
	}
	t.Logf("the others ended after %v: %s", ended, &out)
	if !openMPI(cmd.Path) {
		return // MPICH's launcher kills the other ranks at once, and gives the reason itself
	}
	reasons := 0
	for r := range ranks {
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, fmt.Sprintf("rank %d of %d: ", r, ranks)) &&
				(strings.Contains(line, "stopped by the launcher") || strings.Contains(line, "no sign of life of rank")) {
				reasons++
				break
			}
		}
	}
	if reasons < ranks-1 {
		t.Errorf("%d ranks gave a reason: need %d: %s", reasons, ranks-1, &out)
	}
}

// living says whether a process is neither gone nor about to be buried.
func living(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// atWork are the processes of this program below another that have computed for a while.
func atWork(t *testing.T, launcher int) (pids []int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	below := map[int]bool{launcher: true}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for range 3 { // of the launcher, of its daemon, of the daemon's
		for _, e := range entries {
			stat, err := os.ReadFile(e + "/stat")
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if parent, _ := strconv.Atoi(fields[1]); below[parent] {
				pid, _ := strconv.Atoi(filepath.Base(e))
				below[pid] = true
			}
		}
	}
	for pid := range below {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if exe != self || err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if ticks, _ := strconv.Atoi(strings.Fields(rest)[11]); ticks >= 20 {
			pids = append(pids, pid)
		}
	}
	return pids
}
