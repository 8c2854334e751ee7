package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/kvol/kvol/internal/render"
)

// patience is how long a step may take before a person is told what it is.
const patience = 700 * time.Millisecond

// progress is the one line on standard error that says what kvol is busy with. It
// is for a person at a terminal, and gone when anything else is written.
type progress struct {
	w io.Writer // nil shows nothing

	mu    sync.Mutex
	timer *time.Timer
	shown bool
}

func newProgress(stderr io.Writer) *progress {
	if !isTerminal(stderr) {
		stderr = nil
	}
	return &progress{w: stderr}
}

// busy shows what, once it has taken long.
func (p *progress) busy(what string) {
	p.end()
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer != nil {
			fmt.Fprintf(p.w, "%s …", render.Line(what))
			p.shown = true
		}
	})
}

// end takes the line away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// busy shows what a verb is busy with, unless nothing is to be said.
func (a *app) busy(what string) {
	if !a.quiet {
		a.progress.busy(what)
	}
}
