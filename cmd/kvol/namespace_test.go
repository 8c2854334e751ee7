package main

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// TestReceive: only what says where to go on, and until when, was handed over by kvol.
func TestReceive(t *testing.T) {
	for _, c := range []struct {
		h    handover
		want int
	}{
		{handover{}, api.ExitUsage}, {handover{MountNS: "mnt:[1]"}, api.ExitUsage}, {handover{Until: time.Now()}, api.ExitUsage},
		{handover{MountNS: "mnt:[1]", Until: time.Now()}, api.ExitOK},
	} {
		letter, err := write(&c.h)
		if err != nil {
			t.Fatal(err)
		}
		defer letter.Close()
		fd, err := unix.Dup(int(letter.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(envHanded, strconv.Itoa(fd))
		if err := (&app{}).receive(); api.ExitCode(err) != c.want {
			t.Errorf("%+v: %v, want exit code %d", c.h, err, c.want)
		}
	}
}
