package paths

import "testing"

func BenchmarkParse(b *testing.B) {
	l := layout1(b)
	for b.Loop() {
		for _, c := range everyPath {
			l.Parse(root + "/" + c.path)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(everyPath)), "ns/path")
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(layouts)
	}
}
