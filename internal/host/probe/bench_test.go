package probe

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// BenchmarkHealthy compares the health of 1,000 file systems, a helper started and
// ended for it each time, with a bare loop of statfs(2) (design: at most 4 times).
func BenchmarkHealthy(b *testing.B) {
	testutil.Root(b)
	base := testutil.TempDir(b)
	var targets []Target
	for i := range 1000 {
		dir := mkdir(b, filepath.Join(base, fmt.Sprint(i)))
		if err := unix.Mount("kvoltest", dir, "tmpfs", 0, "size=4k"); err != nil {
			b.Fatal(err)
		}
		targets = append(targets, Target{Path: dir, Dev: fmt.Sprint(i)})
	}
	b.Run("statfs", func(b *testing.B) {
		defer cpu(b)()
		for b.Loop() {
			for _, g := range targets {
				if err := unix.Statfs(g.Path, new(unix.Statfs_t)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("start", func(b *testing.B) {
		defer cpu(b)()
		for b.Loop() {
			h := New("")
			pidOf(b, h)
			h.Close()
		}
	})
	b.Run("probe", func(b *testing.B) {
		defer cpu(b)()
		h := New("")
		defer h.Close()
		for b.Loop() {
			h.Probe(within(b, soon), targets, time.Second)
		}
	})
	b.Run("start+probe", func(b *testing.B) {
		defer cpu(b)()
		for b.Loop() {
			h := New("")
			h.Probe(within(b, soon), targets, time.Second)
			h.Close()
		}
	})
}

// BenchmarkHung is what a probe takes beyond its time-out (design: 500 ms at
// most, 100 ms wanted), until the helper is given up.
func BenchmarkHung(b *testing.B) {
	for _, n := range []int{1, 8, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			targets, _ := swallowed(b, n)
			const timeout = 500 * time.Millisecond
			var over, worst time.Duration
			for b.Loop() {
				began := time.Now()
				h := New("")
				h.Probe(within(b, soon), targets, timeout)
				h.Close()
				took := time.Since(began) - timeout
				over, worst = over+took, max(worst, took)
			}
			b.ReportMetric(float64(over.Milliseconds())/float64(b.N), "ms-over/op")
			b.ReportMetric(float64(worst.Milliseconds()), "ms-over-worst")
		})
	}
}

// cpu reports the processor time of this process and its helpers: on a busy
// machine it tells more than the wall.
func cpu(b *testing.B) func() {
	used := func() (sum time.Duration) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var r unix.Rusage
			_ = unix.Getrusage(who, &r)
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
		return sum
	}
	before := used()
	return func() { b.ReportMetric(float64((used()-before).Microseconds())/float64(b.N)/1000, "cpu-ms/op") }
}
