package docs

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

const root = "/var/lib/kubelet"

// The pods of the scenes. web is in the namespace shop, and is the one of the helps;
// gone is one that nobody knows any more.
const (
	web     = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2"
	reports = "9a8b7c6d-5e4f-4321-8765-0fedcba98765"
	gone    = "5e2d7a90-4c1b-4f0e-9d3a-7b6c8e1f2a34"
)

// csiDriver is the name of the CSI driver of the scenes.
const csiDriver = "csi.example.com"

// scenes are the nodes that pages and helps name.
var scenes = map[string]func(s *scene){
	"empty": func(*scene) {},
	"completions": func(s *scene) {
		s.must("mkdir -p /etc/bash_completion.d /etc/fish/completions /usr/local/share/zsh/site-functions")
	},
	"new-disk":             (*scene).newDisk,
	"documents":            (*scene).documents,
	"mounted":              (*scene).mounted,
	"staged":               (*scene).staged,
	"free":                 (*scene).free,
	"live":                 (*scene).live,
	"grown":                (*scene).grown,
	"host-path":            (*scene).hostPath,
	"claim":                (*scene).claim,
	"several":              (*scene).several,
	"several-mounted":      (*scene).severalMounted,
	"configured":           (*scene).configured,
	"broken-metadata":      (*scene).brokenMetadata,
	"orphans":              (*scene).orphans,
	"driver-gone":          (*scene).driverGone,
	"busy":                 (*scene).busy,
	"elsewhere":            (*scene).elsewhere,
	"unmounted-lazily":     (*scene).lazily,
	"held-by-kubelet":      (*scene).held,
	"readme":               (*scene).first,
	"csi-documents":        (*scene).driverDocs,
	"empty-dir":            (*scene).emptyDir,
	"dead-fuse":            (*scene).deadFUSE,
	"broken-node":          (*scene).brokenNode,
	"held-by-kubelet-list": (*scene).heldList,
	"leftovers":            (*scene).leftovers,
}

// stage makes a scene.
func stage(t *testing.T, name string) *scene {
	t.Helper()
	build, known := scenes[name]
	if !known {
		t.Fatalf("there is no scene %s", name)
	}
	s := newScene(t)
	build(s)
	return s
}

// sdb is what the newest disk is called beside its own name.
const sdb = "/dev/sdb"

// disk is a loop device that everything is taken off in time at the end.
func (s *scene) disk(bytes int64) string {
	s.t.Helper()
	dev, _ := testutil.LoopImage(s.t, bytes)
	s.t.Cleanup(s.sweep)
	var st unix.Stat_t
	_ = os.Remove(sdb) // of the scene before
	must(s.t, unix.Stat(dev, &st), unix.Mknod(sdb, st.Mode, int(st.Rdev)))
	return dev
}

// sweep takes off what is mounted in the kubelet's directory.
func (s *scene) sweep() {
	table, err := mounts.Read("/proc/self/mountinfo")
	must(s.t, err)
	for _, m := range slices.Backward(table.Under(root)) {
		_ = unix.Unmount(m.MountPoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // what stays is seen with the disk
	}
}

// newDisk is a blank disk of the local PersistentVolume pv-data.
func (s *scene) newDisk() {
	s.disk(64 << 20)
	s.write("pv.yaml", localPV("data", sdb, ""))
	s.write("pod.yaml", pod("web", web, "data")+"---\n"+claim("data"))
}

// documents are a disk with a file system and the documents of it and of a pod.
func (s *scene) documents() {
	dev := s.disk(64 << 20)
	testutil.Mkfs(s.t, dev, "ext4")
	s.write("pv.yaml", localPV("data", sdb, "claimRef: {name: data, namespace: shop}"))
	s.write("pvc.yaml", claim("data"))
	s.write("pod.yaml", pod("web", web, "data")+"---\n"+claim("data"))
}

// mounted is the same when the pod has it.
func (s *scene) mounted() {
	s.documents()
	s.must("kvol setup -f pv.yaml -f pod.yaml")
}

// staged is the same before a pod has it.
func (s *scene) staged() {
	s.documents()
	s.must("kvol mount-device -f pv.yaml")
}

// free is the same when the volume was taken down but for its detaching.
func (s *scene) free() {
	s.staged()
	s.must("kvol unmount-device data")
}

// live is mounted, beside a kubelet that knows the pod.
func (s *scene) live() {
	s.kubelet(pod("web", web, "data"))
	s.mounted()
}

// grown is a volume in a pod, whose disk was made larger than its file system.
func (s *scene) grown() {
	dev := s.disk(21 << 30)
	s.must("mkfs.xfs -q -d size=300m " + dev)
	s.write("pv.yaml", localPV("data", sdb, ""))
	s.must("kvol setup -f pv.yaml --pod-uid " + web)
}

// hostPath is a volume that may be recycled and deleted, with a file in it.
func (s *scene) hostPath() {
	dir, err := os.MkdirTemp("/tmp", "kvol-docs") // only what is there may be deleted
	must(s.t, err)
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	s.write(dir+"/file", "data\n")
	s.write("pv.yaml", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n  hostPath: {path: "+dir+"}\n")
}

// claim is a claim of a class whose volumes kvol makes.
func (s *scene) claim() {
	s.t.Cleanup(func() {
		made, _ := s.run("sed -n 's/^ *path: *//p' pv.yaml")
		if dir := strings.TrimSpace(made); strings.HasPrefix(dir, "/tmp/hostpath_pv/") {
			_ = os.Remove(dir)
			_ = os.Remove("/tmp/hostpath_pv") // of others where it is not empty
		}
	})
	s.write("storageclass.yaml", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: scratch}\nprovisioner: kubernetes.io/host-path\n")
	s.write("pvc.yaml", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: shop, uid: 6f1c2d3e-0000-4000-8000-000000000001}\nspec: {accessModes: [ReadWriteOnce], storageClassName: scratch, resources: {requests: {storage: 1Mi}}}\n")
}

// several are two pods with a volume each, directories of the node.
func (s *scene) several() {
	for _, name := range []string{"data", "logs"} {
		s.mkdir(s.dir + "/" + name)
	}
	data, other := localPV("data", s.dir+"/data", ""), localPV("logs", s.dir+"/logs", "")
	s.write("pv.yaml", data)
	s.write("pvs.yaml", data+"---\n"+other)
	s.write("pvc.yaml", claim("data"))
	s.write("pvcs.yaml", claim("data")+"---\n"+claim("logs"))
	s.write("pod.yaml", pod("web", web, "data"))
	s.write("pods.yaml", pod("web", web, "data")+"---\n"+pod("reports", reports, "logs"))
}

// severalMounted is the same when the pods have them.
func (s *scene) severalMounted() {
	s.several()
	s.must("kvol setup --all -f pvs.yaml -f pvcs.yaml -f pods.yaml")
}

// configured is a node on which kvol has a configuration file.
func (s *scene) configured() {
	s.write("/etc/kvol/config.yaml", "root-dir: /data/kubelet\n")
}

// handle is that of the CSI volume pv of the scenes.
const pv, handle = "pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f", "vol-0a1b2c3d"

const driverDoc = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: " + csiDriver + "}\nspec: {attachRequired: false}\n"

// csi brings the volume of a CSI driver up for a pod.
func (s *scene) csi(uid string) *testutil.CSI {
	s.t.Helper()
	c := testutil.StartCSI(s.t, testutil.CSIOptions{Root: root, Driver: csiDriver})
	c.Volume(handle, "", 16<<20)
	s.write("recorded-pv-"+pv+".yaml", csiPV(pv, handle))
	s.write("driver.yaml", driverDoc)
	s.must("kvol setup -f recorded-pv-" + pv + ".yaml -f driver.yaml --pod-uid " + uid)
	return c
}

// brokenMetadata is a CSI volume whose metadata a power loss left empty.
func (s *scene) brokenMetadata() {
	s.csi(web)
	must(s.t, os.Truncate(csiDir(web, pv)+"/vol_data.json", 0))
}

// orphans is a node with a live pod, and what is left of one that is gone.
func (s *scene) orphans() {
	s.old("pods/"+web, "pods/"+gone, strings.TrimPrefix(stagingOf(handle), root))
	s.csi(gone)
	s.mounted()
	s.pods("recorded-pods.json", pod("web", web, "data"))
	s.env = append(s.env, "KVOL_PODS_FROM=file:"+s.dir+"/recorded-pods.json")
	s.write(podDir(gone)+"/etc-hosts", "127.0.0.1 localhost\n")
}

// old has the kubelet's directory, these below it and what is written to "old" be
// there for long: on a disk, whose time of birth can be chosen.
func (s *scene) old(dirs ...string) {
	s.t.Helper()
	for _, dir := range append(dirs, "pods", "plugins", "plugins_registry") {
		s.mkdir(s.dir + "/old/" + dir)
	}
	img := s.dir + "/root.img"
	s.must("find old -exec touch -d '8 days ago' {} + && truncate -s 32M " + img +
		" && E2FSPROGS_FAKE_TIME=$(date -d '8 days ago' +%s) mke2fs -q -t ext4 -d old " + img + " && rm -r old")
	testutil.Mount(s.t, testutil.Loop(s.t, img), root, "ext4", 0, "")
}

// kubelet starts a kubelet that knows these pods.
func (s *scene) kubelet(pods ...string) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(s.t, l.Close())
	s.pods("kubelet-pods.yaml", pods...)
	s.write(root+"/config.yaml", fmt.Sprintf("kind: KubeletConfiguration\nreadOnlyPort: %d\n", port))
	cmd := exec.Command(s.bin+"/kubelet", "--config", root+"/config.yaml")
	cmd.Env = append(s.env, "FAKELET_PODS="+s.dir+"/kubelet-pods.yaml")
	stdin, err := cmd.StdinPipe()
	must(s.t, err)
	stdout, err := cmd.StdoutPipe()
	must(s.t, err, cmd.Start())
	s.t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // an example may have stopped it
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("the kubelet says %q: %v", line, err)
	}
	s.write("kubelet.pid", strconv.Itoa(cmd.Process.Pid))
}

func localPV(name, path, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  local: {path: %s}
  %s
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
`, name, path, more)
}

func csiPV(name, handle string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  csi: {driver: %s, volumeHandle: %s}
`, name, csiDriver, handle)
}

func claim(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: shop}
spec: {accessModes: [ReadWriteOnce], volumeName: %[1]s, resources: {requests: {storage: 16Mi}}}
`, name)
}

// pod is a Pod with a volume for each claim.
func pod(name, uid string, claims ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, uid: %s}\nspec:\n  nodeName: node1\n  containers: [{name: c, image: i}]\n  volumes:\n", name, uid)
	for _, c := range claims {
		fmt.Fprintf(&b, "  - {name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}\n", c)
	}
	return b.String()
}

// podDir, csiDir, target and stagingOf are places of pods and of CSI volumes.
func podDir(uid string) string         { return filepath.Join(root, "pods", uid) }
func csiDir(uid, volume string) string { return podDir(uid) + "/volumes/kubernetes.io~csi/" + volume }
func target(uid, volume string) string { return csiDir(uid, volume) + "/mount" }
func stagingOf(handle string) string {
	return root + "/plugins/kubernetes.io/csi/" + csiDriver + "/" + paths.HandleHash(handle)
}

// podData and stagedData are what vol_data.json says.
func podData(volume, handle string) string {
	return fmt.Sprintf(`{"attachmentID":%q,"driverName":%q,"nodeName":"node1","specVolID":%q,"volumeHandle":%q,"volumeLifecycleMode":"Persistent"}`,
		paths.CSIAttachmentID(handle, csiDriver, "node1"), csiDriver, volume, handle)
}

func stagedData(handle string) string {
	return fmt.Sprintf(`{"driverName":%q,"volumeHandle":%q}`, csiDriver, handle)
}

// pods is a PodList of Pod documents, as kubectl gives it.
func (s *scene) pods(file string, all ...string) {
	s.t.Helper()
	items := "apiVersion: v1\nkind: PodList\nmetadata: {}\nitems:\n"
	for _, p := range all {
		items += "- " + strings.ReplaceAll(strings.TrimSuffix(p, "\n"), "\n", "\n  ") + "\n"
	}
	s.write(file, items)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
