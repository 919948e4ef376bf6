// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

// task is a block of one group's output columns, for all of the group's rows.
type task struct {
	group    int
	from, to int // columns
}

// block is what one task takes of the columns at the least, and in multiples of which a group is cut: a panel of outputs.
const block = 64

// partition cuts the columns of all groups into one list of tasks for each worker, of about equal cost. It depends on its
// arguments alone. cost is what one column of a group costs; 0 leaves the group out.
func partition(workers, groups int, columns, cost func(group int) int) [][]task {
	total := 0
	for g := range groups {
		total += blocks(columns(g)) * cost(g)
	}
	tasks := make([][]task, workers)
	done := 0
	for g := range groups {
		n, c := blocks(columns(g)), cost(g)
		for b := 0; b < n && c > 0; {
			// The worker in whose part of the total the block's middle lies, and all further blocks of that part.
			w := (2*done + c) * workers / (2 * total)
			from := b
			for b < n && (2*done+c)*workers/(2*total) == w {
				b++
				done += c
			}
			tasks[w] = append(tasks[w], task{g, from * block, min(b*block, columns(g))})
		}
	}
	return tasks
}

func blocks(columns int) int { return (columns + block - 1) / block }

// perGroup runs do over the groups' columns, cut by what they cost.
func (l *layer) perGroup(columns, cost func(e int) int, do func(w *worker, t task)) {
	tasks := partition(l.size, l.Experts+1, columns, cost)
	l.each(func(w *worker) {
		for _, t := range tasks[w.index] {
			do(w, t)
		}
	})
}

// rowChunk is how many rows a task works on at a time, which bounds a worker's buffers.
const rowChunk = 128

// chunks calls do for rows from one to another, in chunks.
func chunks(rows int, do func(from, to int)) {
	for from := 0; from < rows; from += rowChunk {
		do(from, min(from+rowChunk, rows))
	}
}
