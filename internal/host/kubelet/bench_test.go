package kubelet

import "testing"

// Find is on the way of every command that is not told the root directory.
func BenchmarkFind(b *testing.B) {
	for b.Loop() {
		if _, err := Find("/proc"); err != nil {
			b.Fatal(err)
		}
	}
}
