// Package bench measures kvol as a user meets it: the built program.
package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// maxRatio is how much longer than a program that does nothing but print kvol's
// help may take; maxBytes is the size of the stripped program.
const (
	maxRatio = 4.5
	maxBytes = 30 << 20
)

// BenchmarkStartup runs "kvol --help" and a hello-world built the same way in
// turn, and reports the ratio of the medians of their wall times: what else the
// machine does slows both.
func BenchmarkStartup(b *testing.B) {
	dir := b.TempDir()
	hello := filepath.Join(dir, "hello.go")
	text := "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n"
	if err := os.WriteFile(hello, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	base := build(b, filepath.Join(dir, "hello"), hello)
	kvol := build(b, filepath.Join(dir, "kvol"), "../../cmd/kvol")
	info, err := os.Stat(kvol)
	if err != nil {
		b.Fatal(err)
	}
	var ofBase, ofKvol []time.Duration
	for b.Loop() {
		ofBase = append(ofBase, wall(b, base))
		ofKvol = append(ofKvol, wall(b, kvol, "--help"))
	}
	ratio := float64(median(ofKvol)) / float64(median(ofBase))
	b.ReportMetric(0, "ns/op") // a run of both means nothing
	b.ReportMetric(ratio, "x-hello")
	b.ReportMetric(float64(median(ofKvol).Microseconds()), "µs-help")
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
	if ratio > maxRatio {
		b.Errorf("kvol --help takes %.2f times as long as a hello-world, more than %v", ratio, maxRatio)
	}
	if info.Size() > maxBytes {
		b.Errorf("the program has %d bytes, more than %d", info.Size(), maxBytes)
	}
}

// build builds as "make build" does.
func build(b *testing.B, out, pkg string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v\n%s", pkg, err, text)
	}
	return out
}

func wall(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	start := time.Now()
	if err := exec.CommandContext(b.Context(), name, args...).Run(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
