package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// csiPV writes the document of a CSI volume.
func (s *scene) csiPV(name, driver, handle string) string {
	return s.file(name+".yaml", fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec:\n  accessModes: [ReadWriteOnce]\n  capacity: {storage: 1Gi}\n  csi: {driver: %s, volumeHandle: %s}\n", name, driver, handle))
}

// persistent is the metadata of a PersistentVolume in a pod.
func persistent(pv, driver, handle, nodeName string) []string {
	return []string{
		"attachmentID", paths.CSIAttachmentID(handle, driver, nodeName), "driverName", driver, "nodeName", nodeName,
		"specVolID", pv, "volumeHandle", handle, "volumeLifecycleMode", "Persistent",
	}
}

// recovering is a way to recover what make leaves on the node.
func recovering(make func(s *scene) []string) func(*scene) []string {
	return func(s *scene) []string {
		return append([]string{"recover", "--apply", "--node-name", "node1"}, make(s)...)
	}
}

// badRecover are the volumes whose metadata cannot be told, and those that are none.
func badRecover() []bad {
	all := append(badContradictions(), badUnknowns()...)
	for i := range all {
		all[i].reason, all[i].began, all[i].make = "Refused", true, recovering(all[i].make)
	}
	return append(all, []bad{
		{name: "recover what nobody knows", make: words("recover", "nobody"), reason: "NotFound", want: []string{"nobody", "-f"}},
		{name: "recover a pod", make: func(s *scene) []string {
			s.volData(podData(podA, "pv"), persistent("pv", "d", "h", "n")...)
			return []string{"recover", podA}
		}, reason: "NotFound", want: []string{podA, "kvol list-mounts"}},
		{name: "recover a pod's directory", make: func(s *scene) []string { return []string{"recover", s.mkdir(s.root + "/pods/" + podA)} }, reason: "NotFound", want: []string{podA, "kvol paths"}},
		{name: "recover a volume that is not there", make: func(s *scene) []string { return []string{"recover", s.root + podData(podA, "pv")} }, reason: "NotFound", want: []string{"no such volume", "kvol list-mounts"}},
		{name: "recover below a volume", make: func(s *scene) []string {
			return []string{"recover", filepath.Dir(s.volData(podData(podA, "pv"), persistent("pv", "d", "h", "n")...)) + "/mount/file"}
		}, reason: "NotFound", want: []string{"mount/file", "kvol paths"}},
		{name: "recover outside of the root", make: words("recover", "/etc/passwd"), reason: "NotFound", want: []string{"/etc/passwd", "kvol paths"}},
		{name: "recover nothing", make: words("recover"), reason: "Usage", want: []string{"no volume", "-f"}},
		{name: "recover two", make: words("recover", "a", "b"), reason: "Usage", want: []string{"PATH or VOLUME", "2"}},
		{name: "recover a path that is relative", make: words("recover", "pods/x"), reason: "BadInput", want: []string{`"pods/x"`, "slash"}},
		{name: "recover a path with dots", make: words("recover", "/a/../b"), reason: "BadInput", want: []string{"/a/../b"}},
		{name: "recover of several documents", make: func(s *scene) []string {
			return []string{"recover", "-f", s.csiPV("a", "d", "h"), "-f", s.csiPV("b", "d", "h")}
		}, reason: "Usage", want: []string{"2 volumes", "kvol recover"}},
		{name: "recover with a file that is not there", make: words("recover", "pv", "-f", "/nowhere.yaml"), reason: "BadInput", want: []string{"/nowhere.yaml"}},
		{name: "script of what is recovered", make: words("recover", "pv", "--apply", "-o", "shell"), reason: "Usage", want: []string{"shell", "without --apply"}, plain: true},
	}...)
}

// badContradictions are places of which two things are told.
func badContradictions() []bad {
	return []bad{
		{name: "file of another handle than its directory", want: []string{"other", "SHA-256", "moved away"}, make: func(s *scene) []string {
			return []string{s.volData(stagingData("d", "h"), "driverName", "d", "volumeHandle", "other")}
		}},
		{name: "file of another driver than its directory", want: []string{`"other"`, "driver d"}, make: func(s *scene) []string {
			return []string{s.volData(stagingData("d", "h"), "driverName", "other", "volumeHandle", "h")}
		}},
		{name: "file of another volume than its directory", want: []string{`"other"`, "volume pv"}, make: func(s *scene) []string {
			return []string{s.volData(podData(podA, "pv"), persistent("other", "d", "h", "node1")...)}
		}},
		{name: "document of another handle than the file", want: []string{"volumeHandle", "-f: PersistentVolume pv says other", "the file itself says h"}, make: func(s *scene) []string {
			return []string{s.volData(podData(podA, "pv"), persistent("pv", "d", "h", "node1")...), "-f", s.csiPV("pv", "d", "other")}
		}},
		{name: "document of another driver than what is left", want: []string{"driverName", "what is left of the file says d", "other"}, make: func(s *scene) []string {
			return []string{s.volFile(podData(podA, "pv"), `{"driverName":"d","volu`), "-f", s.csiPV("pv", "other", "h")}
		}},
		{name: "attachment of another handle", want: []string{"attachmentID", "what is left of the file"}, make: func(s *scene) []string {
			return []string{s.volFile(podData(podA, "pv"), `{"attachmentID":"`+paths.CSIAttachmentID("h", "d", "node1")+`","volu`), "-f", s.csiPV("pv", "d", "other")}
		}},
		{name: "attachment of another node", want: []string{"attachmentID", "what is left of the file"}, make: func(s *scene) []string {
			return []string{s.volFile(podData(podA, "pv"), `{"attachmentID":"`+paths.CSIAttachmentID("h", "d", "node2")+`","volu`), "-f", s.csiPV("pv", "d", "h")}
		}},
		{name: "two pods that disagree about a volume", want: []string{"volumeHandle", "h1", "h2", podA, podB}, make: func(s *scene) []string {
			s.volData(podData(podA, "pv"), persistent("pv", "d", "h1", "node1")...)
			s.volData(podData(podB, "pv"), persistent("pv", "d", "h2", "node1")...)
			return []string{s.volFile(oldData("pv"), "")}
		}},
		{name: "two volumes that disagree about the node", want: []string{"nodeName", "node1", "node2"}, make: func(s *scene) []string {
			s.volData(podData(podB, "other"), persistent("other", "d", "h2", "node2")...)
			return []string{s.volFile(podData(podA, "pv"), ""), "-f", s.csiPV("pv", "d", "h")}
		}},
		{name: "mounted from the staging directory of another", want: []string{"mount table", paths.HandleHash("h")}, make: func(s *scene) []string {
			staging, file := s.volFile(stagingData("d", "h"), ""), s.volFile(podData(podA, "pv"), "")
			s.tmpfs(filepath.Dir(staging) + "/globalmount")
			testutil.Bind(s.t, filepath.Dir(staging)+"/globalmount", filepath.Dir(file)+"/mount", false)
			return []string{file, "-f", s.csiPV("pv", "d", "other")}
		}},
	}
}

// badUnknowns are places of which not enough is told.
func badUnknowns() []bad {
	return []bad{
		{name: "nothing tells the handle", want: []string{"it is empty", "driverName", "volumeHandle", "kubectl get pv pv -o yaml", "specVolID is pv"}, make: func(s *scene) []string {
			return []string{s.volFile(podData(podA, "pv"), "")}
		}},
		{name: "nothing tells the handle of a staging directory", want: []string{"volumeHandle", "driverName is d", "kubectl get pv"}, make: func(s *scene) []string {
			file := s.volFile(stagingData("d", "h"), "")
			s.volData(podData(podA, "pv"), persistent("pv", "d", "other", "node1")...)
			return []string{file}
		}},
		{name: "nothing tells the handle of a raw block volume", want: []string{"volumeHandle", "-f pv.yaml"}, make: func(s *scene) []string {
			s.mkdir(s.root + "/plugins/kubernetes.io/csi/volumeDevices/pv/dev")
			return []string{"pv"}
		}},
		// A PersistentVolume of that name in another pod is no proof: pods name their inline
		// volumes as they like.
		{name: "another pod's volume of the same name", want: []string{"driverName", "volumeHandle", "-f pv.yaml", "pod.yaml"}, make: func(s *scene) []string {
			s.volData(podData(podB, "data"), persistent("data", "d", "h", "node1")...)
			return []string{s.volFile(podData(podA, "data"), "")}
		}},
		{name: "an inline volume of the same name in another pod", want: []string{"driverName", "volumeHandle"}, make: func(s *scene) []string {
			s.volData(podData(podB, "data"), "driverName", "d", "nodeName", "node1", "specVolID", "data",
				"volumeHandle", paths.CSIInlineHandle(podB, "data"), "volumeLifecycleMode", "Ephemeral")
			return []string{s.volFile(oldData("data"), "")}
		}},
		{name: "document of a volume that is not of CSI", want: []string{"driverName", "-f pv.yaml", "source local"}, make: func(s *scene) []string {
			return []string{s.volFile(podData(podA, "pv"), ""), "-f", s.pv("pv", s.outside+"/data")}
		}},
		{name: "document of another pod's inline volume", want: []string{"driverName", "pod.yaml"}, make: func(s *scene) []string {
			doc := podDocument(podB, "b", "{}") + "  volumes:\n  - {name: data, csi: {driver: d}}\n"
			return []string{s.volFile(podData(podA, "data"), ""), "-f", s.file("b.yaml", doc)}
		}},
		{name: "name of which a tilde is a slash, or itself", want: []string{"specVolID", "-f pv.yaml"}, make: func(s *scene) []string {
			staging := s.volData(stagingData("d", "h"), "driverName", "d", "volumeHandle", "h")
			file := s.volFile(podData(podA, "a~b"), "")
			s.tmpfs(filepath.Dir(staging) + "/globalmount")
			testutil.Bind(s.t, filepath.Dir(staging)+"/globalmount", filepath.Dir(file)+"/mount", false)
			return []string{file}
		}},
		{name: "directory in the place of the file", want: []string{"vol_data.json", "dir"}, make: func(s *scene) []string {
			s.mkdir(s.root + podData(podA, "pv"))
			return []string{s.root + podData(podA, "pv"), "-f", s.csiPV("pv", "d", "h")}
		}},
		{name: "link in the place of the file", want: []string{"vol_data.json", "link"}, make: func(s *scene) []string {
			file := s.volFile(podData(podA, "pv"), "")
			if err := os.Remove(file); err != nil {
				s.t.Fatal(err)
			}
			s.symlink(s.outside+"/pod/keep", file)
			return []string{file, "-f", s.csiPV("pv", "d", "h")}
		}},
		{name: "pipe in the place of the file", want: []string{"vol_data.json"}, make: func(s *scene) []string {
			file := s.volFile(podData(podA, "pv"), "")
			if err := os.Remove(file); err != nil {
				s.t.Fatal(err)
			}
			if err := unix.Mkfifo(file, 0o600); err != nil {
				s.t.Fatal(err)
			}
			return []string{file, "-f", s.csiPV("pv", "d", "h")}
		}},
	}
}

// badAll are the ways to ask for all volumes, and for a script with kvol, that cannot
// be meant.
func badAll() []bad {
	pod := func(volumes ...string) func(*scene) []string {
		return func(s *scene) []string {
			pv, _ := s.dataDir("pv", claim("pv"))
			return []string{"setup", "--all", "-f", pv, "-f", s.podOf(podA, "pod", volumes...)}
		}
	}
	script := func(more ...string) func(*scene) []string {
		return func(s *scene) []string { return append(s.up("--shell-with-kvol"), more...) }
	}
	twoClaims := `persistentVolumeClaim: {claimName: pv, readOnly: true}`
	return []bad{
		{name: "--all and a volume", make: words("teardown", "pv", "--all", "--pod-uid", podA), reason: "Usage", want: []string{"--all", `"pv"`}},
		{name: "--all and --volume", make: func(s *scene) []string { return s.up("--all", "--volume", "pv") }, reason: "Usage", want: []string{"--all", `"pv"`}},
		{name: "--all of no pod", make: words("teardown", "--all"), reason: "Usage", want: []string{"--all", "--pod-uid"}},
		{name: "--all of documents without a pod", make: func(s *scene) []string { return append(s.up()[:3], "--all") }, reason: "Usage", want: []string{"no pod", "--pod-uid"}},
		{name: "--all of an empty uid", make: words("unpublish", "--all", "--pod-uid="), reason: "Usage", want: []string{"--pod-uid has an empty value"}},
		{name: "--all of a uid that is none", make: words("unpublish", "--all", "--pod-uid", "../x"), reason: "BadInput", want: []string{`"../x"`, "pod uid"}},
		{name: "--all of a second uid that is none", make: words("unpublish", "--all", "--pod-uid", podA, "--pod-uid", "../x"), reason: "BadInput", want: []string{`"../x"`, "pod uid"}},
		{name: "two pods without --all", make: words("unpublish", "pv", "--pod-uid", podA, "--pod-uid", podB), reason: "Usage", want: []string{"--pod-uid", "2 times", "--all"}},
		{name: "--all for a global mount", make: words("unmount-device", "--all"), reason: "Usage", want: []string{"--all", "kvol unmount-device --help"}},
		{name: "--all of a pod that is not given", make: func(s *scene) []string { return append(pod("pv")(s), "--pod-uid", podB) }, reason: "Usage", want: []string{podB, podA}},
		{name: "--all of a claim that is not given", make: pod("pv", "gone"), reason: "BadInput", want: []string{"gone", "kubectl get pvc"}},
		{name: "--all of one volume with two kinds of access", make: pod("pv", twoClaims), reason: "BadInput", want: []string{`"v0"`, `"v1"`, "--volume"}},
		{name: "--all of documents that disagree", make: func(s *scene) []string {
			return append(pod("other")(s), "-f", s.file("pvc.yaml", strings.ReplaceAll(goodPVC, "name: claim", "name: other")))
		}, reason: "BadInput", want: []string{"default/pv", "default/other", "kubectl get"}},
		{name: "--all of a pod without a uid", make: func(s *scene) []string {
			return []string{"setup", "--all", "-f", s.file("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n  volumes: [{name: e, emptyDir: {}}]\n")}
		}, reason: "Usage", want: []string{"metadata.uid", "--pod-uid"}},
		{name: "script with kvol of no plan", make: script(), reason: "Usage", want: []string{"--shell-with-kvol", "--dry-run -o shell"}},
		{name: "script with kvol that is a table", make: script("--dry-run"), reason: "Usage", want: []string{"--shell-with-kvol", "--dry-run -o shell"}},
		{name: "script with kvol of standard input", make: func(s *scene) []string {
			s.stdin = goodPV
			return []string{"setup", "-f", "-", "--pod-uid", podA, "--shell-with-kvol", "--dry-run", "-o", "shell"}
		}, reason: "Usage", want: []string{"-f -", "file"}, plain: true},
		{name: "script with kvol of a pipe", make: words("setup", "-f", "/dev/fd/0", "--pod-uid", podA, "--shell-with-kvol", "--dry-run", "-o", "shell"), reason: "Usage", want: []string{"/dev/fd/0", "file"}, plain: true},
	}
}
