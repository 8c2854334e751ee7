package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// BenchmarkListMounts runs "kvol list-mounts --no-probe" and "findmnt -rn" in turn on nodes
// of more and more mounts, two a pod, and reports the ratio of their medians. Beside
// the mount table, which is all that findmnt reads, kvol reads five directories a pod.
func BenchmarkListMounts(b *testing.B) {
	testutil.Root(b)
	kvol := build(b, filepath.Join(b.TempDir(), "kvol"), "../../cmd/kvol")
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			root := pods(b, n/2)
			var list, table, peer []time.Duration
			for b.Loop() {
				list = append(list, wall(b, kvol, "--root-dir", root, "list-mounts", "--no-probe", "-o", "json"))
				table = append(table, wall(b, kvol, "--root-dir", root, "list-mounts", "--no-probe"))
				peer = append(peer, wall(b, "findmnt", "-rn"))
			}
			b.ReportMetric(0, "ns/op") // a run of all means nothing
			b.ReportMetric(float64(median(list))/float64(median(peer)), "json/findmnt")
			b.ReportMetric(float64(median(table))/float64(median(peer)), "table/findmnt")
			b.ReportMetric(float64(median(list).Microseconds()), "µs-json")
		})
	}
}

// pods makes a kubelet's root directory with pods that have a service account's token,
// a volume of CSI and an empty directory.
func pods(b *testing.B, n int) string {
	b.Helper()
	dir := testutil.TempDir(b)
	testutil.Tmpfs(b, dir)
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	src := dir + "/src"
	must(os.Mkdir(src, 0o755))
	for i := range n {
		volumes := fmt.Sprintf("%s/kubelet/pods/52a4fa2e-7e24-44be-a5e5-%012d/volumes", dir, i)
		must(os.MkdirAll(volumes+"/kubernetes.io~empty-dir/tmp", 0o755))
		token, csi := volumes+"/kubernetes.io~projected/kube-api-access", volumes+"/kubernetes.io~csi/data/mount"
		must(os.MkdirAll(token, 0o755))
		must(unix.Mount("tmpfs", token, "tmpfs", 0, ""))
		must(os.MkdirAll(csi, 0o755))
		must(unix.Mount(src, csi, "", unix.MS_BIND, ""))
	}
	return dir + "/kubelet"
}
