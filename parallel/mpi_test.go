// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/samebit/samebit/internal/mpi"
	"github.com/samebit/samebit/internal/patience"
	"github.com/samebit/samebit/parallel"
)

// child is the environment variable that tells this test's processes what to do.
const child = "SAMEBIT_MPI_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(child); what != "" {
		if err := inWorld(what); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stderr, "child: ended")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// inWorld is one process of a world.
func inWorld(what string) (err error) {
	limits := patience.Defaults()
	if strings.HasPrefix(what, "late") { // with short limits
		limits = patience.Limits{Call: time.Second, Meet: 3 * time.Second, Silence: 2 * time.Second, Heartbeat: 200 * time.Millisecond}
	}
	world, err := mpi.Open(limits)
	if err != nil {
		return err
	}
	g := parallel.NewGroup(world)
	defer func() {
		if err != nil {
			g.Abort(err)
		}
		if e := g.Close(); err == nil {
			err = e
		}
	}()
	first, last := g.Rank() == 0, g.Rank() == g.Size()-1
	switch what {
	case "exercise":
		if err := exercise(g); err != nil {
			return err
		}
		// More bytes than are sent at once.
		big := [][]byte{}
		for range g.Size() {
			big = append(big, make([]byte, 40<<20))
		}
		return g.AllGather(big, make([]byte, 40<<20))
	case "abort":
		if last {
			return errors.New("out of memory")
		}
		return g.Barrier()
	case "leave":
		if last {
			return nil
		}
		return g.Barrier()
	case "sizes, long": // longer than what is sent at once
		recv := make([][]byte, g.Size())
		for r := range recv {
			recv[r] = make([]byte, 1<<20)
		}
		if last {
			return g.Barrier()
		}
		return g.AllGather(recv, make([]byte, 1<<20))
	case "sizes":
		recv := make([][]byte, g.Size())
		for r := range recv {
			recv[r] = make([]byte, 7)
		}
		if last {
			return g.Barrier()
		}
		return g.AllGather(recv, make([]byte, 7))
	case "late, after the others have left":
		err := g.Barrier()
		if first && err == nil {
			time.Sleep(2*limits.Silence + time.Second)
			fmt.Fprintln(os.Stderr, "child: the work of rank 0 is done")
		}
		return err
	case "late, and stopped while the others leave":
		err := g.Barrier()
		if first && err == nil {
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(time.Hour) // the call may come back before the signal comes
		}
		return err
	case "late, as one is stopped that has said goodbye":
		if err := g.Barrier(); err != nil {
			return err
		}
		if first {
			return exec.Command("sh", "-c", fmt.Sprintf("sleep 0.7; kill -STOP %d", os.Getpid())).Start()
		}
		if last {
			time.Sleep(1500 * time.Millisecond)
		}
		return nil
	case "late, and missed":
		if last {
			time.Sleep(2 * limits.Call)
		}
		return g.Barrier()
	case "late, as the whole job was suspended":
		if err := g.Barrier(); err != nil {
			return err
		}
		me := os.Getpid()
		stop := exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %d; sleep %g; kill -CONT %d", me, 2*limits.Silence.Seconds(), me))
		if err := stop.Run(); err != nil { // it ends when this process goes on
			return err
		}
		time.Sleep(limits.Heartbeat)
		return g.Barrier()
	case "grid":
		_, err := parallel.Join(g, parallel.Grid{TP: g.Size() - g.Rank()%2, EP: 1})
		return err
	}
	return fmt.Errorf("unknown task %q", what)
}

// launch runs this test's program as n ranks, and gives what they print.
func launch(t *testing.T, n int, what string) (string, error) {
	t.Helper()
	run, err := exec.LookPath("mpirun")
	if err != nil {
		if strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "mpi") {
			t.Fatal("SAMEBIT_REQUIRE names mpi: found no mpirun")
		}
		t.Skip("found no mpirun: need an MPI")
	}
	// Some versions of Open MPI's mpirun do now and then not end once all ranks have.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, run, append(mpirunFlags(run), "-np", fmt.Sprint(n), os.Args[0])...)
	c.Env = append(os.Environ(), child+"="+what)
	out, err := c.CombinedOutput()
	if ctx.Err() != nil && strings.Count(string(out), "child: ended") == n {
		err = nil
	}
	return string(out), err
}

// mpirunFlags let Open MPI's mpirun start more ranks than there are processors, and start them for root in a container.
func mpirunFlags(run string) []string {
	version, _ := exec.Command(run, "--version").Output()
	if strings.Contains(string(version), "Open MPI") || strings.Contains(string(version), "OpenRTE") {
		return []string{"--allow-run-as-root", "--oversubscribe"}
	}
	return nil
}

// Processes exchange what goroutines do, and end like these where one does not do its part.
func TestMPI(t *testing.T) {
	for _, c := range []struct{ task, want string }{
		{"exercise", ""},
		{"abort", "rank 2: out of memory"},
		{"leave", "rank 2 has left"},
		{"sizes", "need the same calls and the same flags on every rank"},
		{"sizes, long", "need the same calls and the same flags on every rank"},
		{"grid", "need the same on every rank"},
		{"late, after the others have left", ""},
		{"late, and stopped while the others leave", "no sign of life of rank 0 in 2s"},
		{"late, as one is stopped that has said goodbye", "all ranks have said that they leave, and have not in 3s"},
		{"late, and missed", "rank 2 lives, but has not called what this rank has in 1s"},
		{"late, as the whole job was suspended", ""},
	} {
		start := time.Now()
		out, err := launch(t, 3, c.task)
		if c.task == "late, after the others have left" && !strings.Contains(out, "rank 0 is done") {
			t.Errorf("%s: rank 0 was ended before its work was: %s", c.task, out)
		}
		if (err == nil) != (c.want == "") || !strings.Contains(out, c.want) || strings.Contains(out, "SIG") {
			t.Errorf("%s: %v, %s: want %q", c.task, err, out, c.want)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", c.task, d)
		}
	}
}
