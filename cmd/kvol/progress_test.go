package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// pty gives a terminal, and what is shown on it.
func pty(t *testing.T) (tty *os.File, screen func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	var mu sync.Mutex
	var seen bytes.Buffer
	go func() {
		buf := make([]byte, 1024)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			seen.Write(buf[:n])
			mu.Unlock()
		}
	}()
	return tty, func() string {
		mu.Lock()
		defer mu.Unlock()
		return seen.String()
	}
}

// What takes long is said on a terminal, in one line that goes again, whatever
// control characters it has.
func TestProgressOnATerminal(t *testing.T) {
	tty, screen := pty(t)
	p := newProgress(tty)
	p.busy("quick")
	p.busy("format /dev/\x1b[2Jx")
	testutil.Poll(t, "the progress line", func() bool { return strings.Contains(screen(), "format") })
	p.end()
	p.end()
	testutil.Poll(t, "its end", func() bool { return strings.HasSuffix(screen(), "\r\x1b[K") })
	if got, want := screen(), "format /dev/\\x1b[2Jx …\r\x1b[K"; got != want {
		t.Errorf("the terminal got %q, want %q", got, want)
	}
}

func TestNoProgressElsewhere(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	p.busy("format")
	if p.timer != nil {
		t.Error("a line is to be shown where no terminal is")
	}
	p.end()
	if b.Len() != 0 {
		t.Errorf("%q was written", b.String())
	}
}
