package plugintest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// T is a test of which several can be made in a row, each with clean-ups of its
// own, and which can be muted: then a failure is only remembered.
type T struct {
	testing.TB
	mute     bool
	failed   bool
	cleanups []func()
}

// scope runs f with a T whose clean-ups run when f ends, in whatever way.
func scope(t *T, f func(*T)) {
	inner := &T{TB: t.TB, mute: t.mute}
	defer func() {
		inner.cleanUp()
		t.failed = t.failed || inner.failed
	}()
	f(inner)
}

func (t *T) cleanUp() {
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		f := t.cleanups[last]
		t.cleanups = slices.Delete(t.cleanups, last, last+1)
		// A clean-up may end in FailNow; the others run all the same.
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
}

// Cleanup has f run at the end of the scope.
func (t *T) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Failed says whether anything failed in the scope.
func (t *T) Failed() bool { return t.failed }

func (t *T) say(text string) {
	t.Helper()
	if !t.mute {
		t.TB.Log(text)
	}
}

// Fail marks the check as failed.
func (t *T) Fail() {
	t.failed = true
	if !t.mute {
		t.TB.Fail()
	}
}

// FailNow marks the check as failed and ends it.
func (t *T) FailNow() {
	t.Fail()
	runtime.Goexit()
}

// The other ways to speak and to fail are as in [testing.TB].

func (t *T) Log(args ...any)                 { t.Helper(); t.say(fmt.Sprintln(args...)) }
func (t *T) Logf(format string, args ...any) { t.Helper(); t.say(fmt.Sprintf(format, args...)) }
func (t *T) Error(args ...any)               { t.Helper(); t.say(fmt.Sprintln(args...)); t.Fail() }
func (t *T) Errorf(format string, args ...any) {
	t.Helper()
	t.say(fmt.Sprintf(format, args...))
	t.Fail()
}
func (t *T) Fatal(args ...any) { t.Helper(); t.say(fmt.Sprintln(args...)); t.FailNow() }
func (t *T) Fatalf(format string, args ...any) {
	t.Helper()
	t.say(fmt.Sprintf(format, args...))
	t.FailNow()
}
