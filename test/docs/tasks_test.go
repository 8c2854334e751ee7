package docs

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/kvol/kvol/internal/testutil"
)

// driverGone is a pod that cannot end: the CSI driver of its volume is gone, and the
// kubelet calls for it in vain.
func (s *scene) driverGone() {
	s.csi(web).Stop()
	s.kubelet(pod("web", web, "data"))
	s.write("recorded-pod-web.txt", "NAME   READY   STATUS        RESTARTS   AGE\nweb    0/1     Terminating   0          8d\n")
}

// busy is a volume that a backup works in, which nobody ended with the pod.
func (s *scene) busy() {
	s.mounted()
	at := podDir(web) + "/volumes/kubernetes.io~local-volume/data"
	s.write(at+"/orders", "the orders of ten years\n")
	s.daemon("cd " + at + " && exec sleep 1000")
}

// elsewhere is a volume that a process uses in a mount namespace of its own.
func (s *scene) elsewhere() {
	s.mounted()
	s.daemon("exec unshare --mount --propagation private bash -c 'cd " + podDir(web) + "/volumes/kubernetes.io~local-volume/data && exec sleep 1000'")
}

// lazily is a volume that somebody unmounted with umount -l while it was in use.
func (s *scene) lazily() {
	s.busy()
	s.must("kvol unpublish data --pod-uid " + web + " --lazy && kvol unmount-device data")
}

// daemon starts a process that ends with the scene.
func (s *scene) daemon(command string) {
	s.t.Helper()
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(s.t, cmd.Start())
	s.write("/run/backup.pid", strconv.Itoa(cmd.Process.Pid)+"\n")
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an example may have ended it
		_ = cmd.Wait()
	})
	testutil.Poll(s.t, "the process is where it is to be", func() bool {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cmdline")
		return strings.HasPrefix(string(line), "sleep")
	})
}

// fuse makes a FUSE mount as the driver of a volume makes it: once, for all pods.
func (s *scene) fuse(volume, handle string, uids ...string) *testutil.FUSEMount {
	s.t.Helper()
	global := stagingOf(handle) + "/globalmount"
	s.mkdir(global)
	s.write(stagingOf(handle)+"/vol_data.json", stagedData(handle))
	s.t.Setenv(testutil.EnvFUSEName, "s3fs")
	m := testutil.FUSE(s.t, global, testutil.FUSEAlive)
	for _, uid := range uids {
		s.mkdir(target(uid, volume))
		s.write(csiDir(uid, volume)+"/vol_data.json", podData(volume, handle))
		testutil.Bind(s.t, global, target(uid, volume), false)
	}
	return m
}

// deadFUSE is a file system of a FUSE daemon that died, in two pods, and one whose
// daemon hangs.
func (s *scene) deadFUSE() {
	s.fuse("models", "bucket/models", web, reports).Kill()
	s.fuse("logs", "bucket/logs", reports).Stop()
}

// leftovers is what a kubelet complains of for ever: of a pod that is gone a CSI
// volume whose metadata a power loss left empty, and an emptyDir with a file in it.
func (s *scene) leftovers() {
	s.write("old/pods/"+gone+"/volumes/kubernetes.io~csi/"+pv+"/vol_data.json", "")
	s.write("old/pods/"+gone+"/volumes/kubernetes.io~empty-dir/cache/thumbnails.db", "not lost\n")
	s.write("old/pods/"+gone+"/etc-hosts", "127.0.0.1 localhost\n")
	s.old("pods/"+web, "pods/"+gone+"/volumes/kubernetes.io~csi/"+pv+"/mount")
	s.mounted()
	s.pods("recorded-pods.json", pod("web", web, "data"))
	s.kubelet(pod("web", web, "data"))
}

// brokenNode is the same with a dead FUSE mount of the pod that is gone, and the script
// that recovers a node.
func (s *scene) brokenNode() {
	s.leftovers()
	s.fuse("models", "bucket/models", gone).Kill()
	s.must("cp " + s.repository(script) + " .")
}

// held is what a kubelet that runs may hold in its memory: a CSI volume of a pod that
// is gone, whose metadata can be read.
func (s *scene) held() {
	s.old("pods/"+web, "pods/"+gone, strings.TrimPrefix(stagingOf(handle), root))
	s.csi(gone)
	s.mounted()
	s.pods("recorded-pods.json", pod("web", web, "data"))
	s.kubelet(pod("web", web, "data"))
}

// heldList is the same with the list of live pods in kvol's configuration.
func (s *scene) heldList() {
	s.held()
	s.write("/etc/kvol/config.yaml", "pods-from: file:"+s.dir+"/recorded-pods.json\n")
}

// first is the node of the README: a blank disk, and a volume whose daemon hangs.
func (s *scene) first() {
	s.disk(64 << 20)
	s.write("pv.yaml", localPV("pv-data", sdb, ""))
	s.fuse("reports", "bucket/reports", reports).Stop()
}

// driverDocs are the documents of a CSI volume, and its driver.
func (s *scene) driverDocs() {
	c := testutil.StartCSI(s.t, testutil.CSIOptions{Root: root, Driver: csiDriver})
	c.Volume(handle, "", 16<<20)
	s.write("pv.yaml", csiPV("data", handle))
	s.write("csidriver.yaml", driverDoc)
	s.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: unused, namespace: shop}\n")
	s.write("pod.yaml", pod("web", web, "data")+"---\n"+claim("data"))
}

// emptyDir is one with a file in it.
func (s *scene) emptyDir() {
	s.write(podDir(web)+"/volumes/kubernetes.io~empty-dir/cache/page", "page\n")
}
