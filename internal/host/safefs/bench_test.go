package safefs

import (
	"path/filepath"
	"testing"
)

// BenchmarkStat and BenchmarkMkdirRmdir are per operation on a name of six
// elements.
func BenchmarkStat(b *testing.B) {
	eachBench(b, func(r *Root) error { _, err := r.Stat(leafDir); return err })
}

func BenchmarkMkdirRmdir(b *testing.B) {
	eachBench(b, func(r *Root) error {
		if _, err := r.Mkdir(leafDir+"/d", 0o750); err != nil {
			return err
		}
		return r.Rmdir(leafDir + "/d")
	})
}

const leafDir = volDir + "/mount"

func eachBench(b *testing.B, f func(r *Root) error) {
	for _, w := range ways[:2] {
		b.Run(w.name, func(b *testing.B) {
			r, err := OwnDir(filepath.Join(b.TempDir(), "own"), using(w.k))
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			if _, err := r.MkdirAll(leafDir, 0o700); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := f(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
