package mounts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// BenchmarkParse compares parsers on a generated table, in a file: what they
// cost beside the kernel's printing.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		file := filepath.Join(b.TempDir(), "table")
		if err := os.WriteFile(file, []byte(generate(n)), 0o600); err != nil {
			b.Fatal(err)
		}
		benchReaders(b, n, file)
	}
}

// BenchmarkRead compares readers of the kernel's table, of real mounts like those
// of pods.
func BenchmarkRead(b *testing.B) {
	testutil.Root(b)
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			dir := testutil.TempDir(b)
			testutil.Tmpfs(b, dir)
			for i := range n {
				p := filepath.Join(dir, fmt.Sprintf("pods/52a4fa2e-7e24-44be-a5e5-%012d/volumes/kubernetes.io~csi/pvc-80140b17/mount", i))
				if err := os.MkdirAll(p, 0o755); err != nil {
					b.Fatal(err)
				}
				src, fstype, flags := "tmpfs", "tmpfs", uintptr(0)
				if i%3 > 0 {
					src, fstype, flags = dir, "", unix.MS_BIND
				}
				if err := unix.Mount(src, p, fstype, flags, ""); err != nil {
					b.Fatal(err)
				}
			}
			benchReaders(b, n, self)
		})
	}
}

func benchReaders(b *testing.B, n int, file string) {
	for _, r := range []struct {
		name string
		read func() (int, error)
	}{
		{"kvol", func() (int, error) {
			t, err := Read(file)
			return len(t.Mounts), err
		}},
		{"read only", func() (int, error) { // what cat does, without starting it
			fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return 0, err
			}
			defer unix.Close(fd)
			buf := make([]byte, 128<<10)
			for {
				if got, err := unix.Read(fd, buf); err != nil || got == 0 {
					return n, err
				}
			}
		}},
		{"cat", func() (int, error) { return n, exec.Command("cat", file).Run() }},
		{"moby", func() (int, error) {
			f, err := os.Open(file)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			infos, err := mountinfo.GetMountsFromReader(f, nil)
			return len(infos), err
		}},
		{"mount-utils", func() (int, error) {
			infos, err := mountutils.ParseMountInfo(file)
			return len(infos), err
		}},
	} {
		b.Run(fmt.Sprintf("%d/%s", n, r.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, err := r.read(); err != nil || got < n {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// BenchmarkAsk measures the first question to a table, which orders it, and the
// next; on pods' mounts and on one stack, as has been seen (kubernetes#75401).
func BenchmarkAsk(b *testing.B) {
	const n = 75_000
	var stack strings.Builder
	for i := range n {
		fmt.Fprintf(&stack, "%d %d 0:5 / /a/b rw - tmpfs t rw\n", i+1, i)
	}
	for name, text := range map[string]string{"pods": generate(n), "stack": stack.String()} {
		table, err := Parse(strings.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		last := table.Mounts[n-1]
		b.Run(name+"/first", func(b *testing.B) {
			for b.Loop() {
				t := Table{Mounts: table.Mounts}
				if top, ok := t.Top(last.MountPoint); !ok || top.ID != last.ID {
					b.Fatal(top, ok)
				}
			}
		})
		b.Run(name+"/next", func(b *testing.B) {
			for b.Loop() {
				if _, ok := table.Top(last.MountPoint); !ok {
					b.Fatal()
				}
			}
		})
		b.Run(name+"/at", func(b *testing.B) {
			for b.Loop() {
				if len(table.At(last.MountPoint)) == 0 {
					b.Fatal()
				}
			}
		})
	}
}
