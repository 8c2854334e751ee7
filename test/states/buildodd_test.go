package states

import (
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// rawInPod makes the parts of a raw block volume that are a pod's.
func (b *builder) rawInPod(e element, v volume) {
	uid, dev := b.Pods[e.Pod].UID, b.disks[v.Disk].dev
	to, target := dev, b.globalAt(v)+"/"+uid
	if v.Kind == csiBlock {
		to = b.csiDir() + "/volumeDevices/publish/" + v.Name + "/" + uid
	}
	if e.How != "no link" {
		b.link(b.pod(e.Pod)+"/volumeDevices/"+v.plugin()+"/"+v.Name, to, tagMeta)
	}
	if e.How == "link only" {
		return
	}
	if e.How == "a user's file for a target" {
		b.user(target, userText+"file as a target")
		return
	}
	b.meta(target, "")
	if v.Kind == csiBlock {
		b.meta(to, "")
		b.bind(dev, to, tagVolume)
	}
	if e.How == "no bind" || !b.bind(dev, target, tagVolume) || e.How == "no lock" {
		return
	}
	_, err := loopOver(target)
	must(err)
}

func (b *builder) subPath(e element, v volume) {
	from := b.at(e.Pod, v)
	if v.Kind == hostPath {
		from = b.source(v)
	}
	at := b.pod(e.Pod) + "/volume-subpaths/" + v.Name + "/c/0"
	if strings.HasPrefix(e.How, "file") {
		b.meta(at, "")
		from += "/file"
	} else {
		b.mkdir(at)
		from += "/dir"
	}
	if !strings.HasSuffix(e.How, "not mounted") {
		b.bind(from, at, tagVolume)
	}
}

func (b *builder) userFile(e element, v volume) {
	at := b.at(e.Pod, v)
	switch e.How {
	case "beside it":
		b.user(filepath.Dir(at)+"/mine-beside", userText+"file beside")
	case "in it":
		if b.mkdir(at) && b.mine(at) {
			b.user(at+"/mine-in", userText+"file in it")
		}
	case "odd name":
		b.user(filepath.Dir(at)+"/mine \n odd", userText+"file with an odd name")
	case "in the staging directory":
		if dir := b.globalAt(v); dir != "" {
			b.user(filepath.Dir(dir)+"/mine-staging", userText+"file in staging")
		}
	}
}

// mine says that what is at a path is of this node alone and may be written to.
func (b *builder) mine(path string) bool {
	var st, own unix.Stat_t
	must(unix.Lstat(path, &st), unix.Fstat(int(b.view.Fd()), &own))
	for _, t := range b.tmpfs {
		if t.dev == st.Dev {
			return true
		}
	}
	return st.Dev == own.Dev
}

func (b *builder) foreign(e element, v volume) {
	at, pod, stranger := b.at(e.Pod, v), b.pod(e.Pod), b.dir+"/stranger"
	switch e.How {
	case "bind on the volume":
		if b.mkdir(at) {
			b.bind(stranger, at, tagVolume)
		}
	case "tmpfs on the volume":
		if v.raw() {
			return // it has no such place
		}
		if v.csi() { // one of the driver's, for all that kvol knows
			b.foreign(element{Kind: foreign, Pod: e.Pod, How: "bind on the volume"}, v)
		} else if b.memory(at, tagVolume) {
			b.user(at+"/mine", userText+"file in memory")
		}
	case "bind in the pod":
		if b.mkdir(pod + "/odd") {
			b.bind(stranger, pod+"/odd", tagOther)
		}
	case "tmpfs in the pod":
		if b.memory(pod+"/memory", tagOther) {
			b.user(pod+"/memory/mine", userText+"file in memory")
		}
	case "bind on the pod":
		if b.mkdir(pod) {
			b.bind(pod, pod, tagOther)
		}
	case "bind in plugins":
		if b.mkdir(b.csiDir() + "/odd") {
			b.bind(stranger, b.csiDir()+"/odd", tagOther)
		}
	case "bind on containers":
		if b.mkdir(pod + "/containers/c") {
			b.bind(stranger, pod+"/containers/c", tagOther)
		}
	case "bind on etc-hosts":
		b.meta(pod+"/etc-hosts", "")
		b.bind(stranger+"/file", pod+"/etc-hosts", tagOther)
	case "bind of another pod's volume":
		for p := range b.Pods {
			if p != e.Pod && b.mkdir(at) {
				b.bind(b.pod(p), at, tagVolume)
				return
			}
		}
	}
}

func (b *builder) odd(e element, v volume) {
	plugins, pod := b.root+"/plugins", b.pod(e.Pod)
	switch e.How {
	case "file in pods":
		b.user(b.root+"/pods/mine", userText+"file in pods")
	case "directory in pods":
		b.user(b.root+"/pods/no uid/volumes/kubernetes.io~csi/x/mount/mine", userText+"file in pods")
	case "link in pods":
		b.link(b.root+"/pods/0a1b2c3d-0000-4000-8000-0000000000ff", b.dir+"/stranger", tagUser)
	case "file in plugins":
		b.user(plugins+"/mine", userText+"file in plugins")
	case "directory in the driver's":
		b.user(plugins+"/a.csi.test/state/db", userText+"database of the driver")
	case "socket in the driver's":
		if b.mkdir(plugins + "/b.csi.test") {
			if l, err := net.Listen("unix", plugins+"/b.csi.test/csi.sock"); err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				must(l.Close())
			}
		}
	case "file in volumes":
		b.user(pod+"/volumes/mine", userText+"file in volumes")
	case "directory in volumes":
		b.user(pod+"/volumes/"+v.plugin()+"/a\nb/mine", userText+"file in volumes")
	case "link in volumes":
		b.link(pod+"/volumes/"+v.plugin()+"/link", b.dir+"/stranger", tagUser)
	case "old staging":
		at := b.csiDir() + "/pv/" + v.Name
		must(os.MkdirAll(at+"/globalmount", 0o750))
		b.meta(at+"/vol_data.json", `{"driverName":"a.csi.test","volumeHandle":"old"}`)
	case "flex data":
		b.user(plugins+"/kubernetes.io/flexvolume/vendor/driver/mounts/x/mine", userText+"data of flex")
	}
}
