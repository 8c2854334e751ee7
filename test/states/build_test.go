package states

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// order is that in which elements are made.
var order = []string{podDir, odd, global, publish, subPath, userFile, link, foreign, held, elsewhere}

// builder makes a state on a node.
type builder struct {
	*node
	state
	silent []string // where a look would hang
}

func (b *builder) build() {
	for _, v := range b.Vols {
		b.document(v)
		if v.Disk < 0 {
			b.user(b.source(v)+"/file", userText+v.Name)
			b.user(b.source(v)+"/dir/file", userText+"dir of "+v.Name)
		}
	}
	b.elements(func(p int) bool { return p < 0 || b.Pods[p].Life != unknown })
	b.tellPods()
	b.elements(func(p int) bool { return p >= 0 && b.Pods[p].Life == unknown })
	if b.Driver != "none" {
		b.csi = startDriver(b.node, b.Driver, b.Fault)
	}
}

func (b *builder) elements(of func(pod int) bool) {
	for _, kind := range order {
		for _, e := range b.Elements {
			if e.Kind == kind && of(e.Pod) {
				b.element(e)
			}
		}
	}
}

// userText begins the content of everybody's files.
const userText = "somebody's "

func (b *builder) element(e element) {
	v := volume{Disk: -1}
	if e.Vol >= 0 {
		v = b.Vols[e.Vol]
	}
	if e.Pod >= 0 && e.Vol >= 0 && slices.ContainsFunc(b.silent, func(s string) bool { return below(b.at(e.Pod, v), s) }) {
		return
	}
	switch e.Kind {
	case podDir:
		b.podDir(e)
	case odd:
		b.odd(e, v)
	case global:
		b.global(e, v)
	case publish:
		b.publish(e, v)
	case subPath:
		b.subPath(e, v)
	case userFile:
		b.userFile(e, v)
	case link:
		if at := b.at(e.Pod, v); os.Remove(at) == nil {
			b.link(at, b.dir+"/stranger", tagUser)
		}
	case foreign:
		b.foreign(e, v)
	case held:
		b.hold(b.at(e.Pod, v) + map[string]string{"file": "/file"}[e.How])
	case elsewhere:
		b.namespace()
	}
}

// The places of things.
func (b *builder) pod(p int) string          { return b.root + "/pods/" + b.Pods[p].UID }
func (n *node) source(v volume) string       { return n.dir + "/data/" + v.Name }
func (n *node) csiDir() string               { return n.root + "/plugins/kubernetes.io/csi" }
func (b *builder) at(p int, v volume) string { return b.volumeAt(b.Pods[p].UID, v) }

// volumeAt is where a volume is mounted for a pod.
func (n *node) volumeAt(uid string, v volume) string {
	at := n.root + "/pods/" + uid + "/volumes/" + v.plugin() + "/" + v.Name
	if v.csi() {
		at += "/mount"
	}
	return at
}

// globalAt is a volume's global mount, or its global map.
func (n *node) globalAt(v volume) string {
	switch v.Kind {
	case localDisk:
		return n.root + "/plugins/kubernetes.io/local-volume/mounts/" + v.Name
	case localRaw:
		return n.root + "/plugins/kubernetes.io~local-volume/volumeDevices/" + v.Name
	case csiBlock:
		return n.csiDir() + "/volumeDevices/" + v.Name + "/dev"
	case csiStaged, csiPlain:
		return fmt.Sprintf("%s/%s/%x/globalmount", n.csiDir(), v.Driver, sha256.Sum256([]byte(v.Handle)))
	}
	return ""
}

func (b *builder) podDir(e element) {
	dir := b.pod(e.Pod)
	if e.How == "missing" {
		return
	}
	must(os.MkdirAll(dir+"/volumes", 0o750))
	if e.How == "bare" {
		return
	}
	b.meta(dir+"/containers/c/0a1b2c3d", "why it ended")
	must(os.MkdirAll(dir+"/plugins", 0o750))
	switch e.How {
	case "with an attempt of two containers":
		b.meta(dir+"/containers/c/4e5f6a7b", "")
		b.meta(dir+"/containers/d/0a1b2c3d", "")
	case "with a user's file":
		b.user(dir+"/mine", userText+"file")
	case "with a directory of a user's":
		b.user(dir+"/dir/mine", userText+"file")
	case "with a hard link to etc-hosts":
		b.user(b.dir+"/data/hosts", userText+"hosts")
		if os.Link(b.dir+"/data/hosts", dir+"/etc-hosts") == nil {
			b.tags[dir+"/etc-hosts"] = tagMeta
		}
	case "with a link in containers":
		b.link(dir+"/containers/c/link", b.dir+"/stranger/file", tagUser)
	case "with a fifo":
		must(unix.Mkfifo(dir+"/fifo", 0o600))
	}
	b.meta(dir+"/etc-hosts", "127.0.0.1 localhost\n")
}

// volData writes a vol_data.json in one of the states in which they are found.
func (b *builder) volData(path, how string, data map[string]string) {
	raw, err := json.Marshal(data)
	must(err)
	switch how {
	case "good":
		b.meta(path, string(raw)+"\n")
	case "empty":
		b.meta(path, "")
	case "cut":
		b.meta(path, string(raw[:len(raw)/2]))
	case "contradictory":
		data["volumeHandle"] = "handle-0"
		if b.Vols[0].csi() && len(b.Vols) > 1 {
			data["volumeHandle"] = "handle-1"
		}
		raw, err = json.Marshal(data)
		must(err)
		b.meta(path, string(raw)+"\n")
	case "a link":
		b.link(path, b.dir+"/stranger/file", tagUser)
	}
}

func (b *builder) global(e element, v volume) {
	at := b.globalAt(v)
	if !b.mkdir(at) {
		return
	}
	data := map[string]string{"driverName": v.Driver, "volumeHandle": v.Handle}
	switch {
	case v.Kind == csiBlock:
		base := b.csiDir() + "/volumeDevices/"
		b.mkdir(base + "staging/" + v.Name)
		b.mkdir(base + "publish/" + v.Name)
		data["specVolID"], data["nodeName"], data["attachmentID"] = v.Name, "node1", "csi-0"
		b.volData(base+v.Name+"/data/vol_data.json", e.Meta, data)
		return
	case v.csi():
		b.volData(filepath.Dir(at)+"/vol_data.json", e.Meta, data)
	}
	if e.How == "with a user's file below" {
		b.user(at+"/below", userText+"file below "+v.Name)
	}
	if e.How == "empty" || v.Kind == csiPlain || v.raw() {
		return
	}
	b.mountDisk(v, at, tagVolume)
	if e.How == "twice" {
		b.mountDisk(v, at, tagVolume)
	}
}

func (b *builder) publish(e element, v volume) {
	if v.raw() {
		b.rawInPod(e, v)
		return
	}
	at := b.at(e.Pod, v)
	if !b.mkdir(at) {
		return
	}
	uid := b.Pods[e.Pod].UID
	if v.csi() {
		mode, handle := "Persistent", v.Handle
		if v.Kind == csiInline {
			mode, handle = "Ephemeral", fmt.Sprintf("csi-%x", sha256.Sum256([]byte(uid+v.Name)))
		}
		b.volData(filepath.Dir(at)+"/vol_data.json", e.Meta, map[string]string{
			"attachmentID": "csi-0", "driverName": v.Driver, "nodeName": "node1", "specVolID": v.Name, "volumeHandle": handle, "volumeLifecycleMode": mode,
		})
	}
	if name := v.Name; v.content() || v.Kind == emptyDisk || v.Kind == emptyMem {
		if v.content() {
			name = "wrapped_" + name
		}
		marker := b.pod(e.Pod) + "/plugins/kubernetes.io~empty-dir/" + name
		if e.Meta != "missing" {
			b.meta(marker+"/ready", "")
		}
		if e.Meta == "contradictory" {
			b.user(marker+"/mine", userText+"file beside ready")
		}
	}
	if e.How == "with a user's file below" {
		b.user(at+"/below", userText+"file below "+v.Name)
	}
	b.fillVolume(e, v, at)
}

func (b *builder) fillVolume(e element, v volume, at string) {
	mounted := strings.HasPrefix(e.How, "mounted") || e.How == "twice" || e.How == "read-only" || e.How == "with a user's file below"
	switch {
	case e.How == "dead" || e.How == "hung":
		b.fuse(at, e.How)
		b.silent = append(b.silent, at)
		return
	case v.Kind == emptyDisk:
		if e.How == "content" || e.How == "content and a user's file" {
			b.user(at+"/dir/file", userText+"scratch data")
		}
		return
	case v.content() || v.Kind == emptyMem:
		if mounted && v.Kind != configMap && !b.memory(at, tagVolume) {
			return
		}
	case !mounted:
		return
	case v.Disk >= 0:
		b.mountDisk(v, at, tagVolume)
	default:
		b.bind(b.source(v), at, tagVolume)
	}
	if e.How == "twice" {
		b.bind(at, at, tagVolume)
	}
	if e.How == "read-only" {
		must(unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	if v.content() && e.How != "empty" {
		b.atomic(at, strings.HasSuffix(e.How, "half written"))
	}
	if strings.HasSuffix(e.How, "user's file") || strings.HasSuffix(e.How, "with data") {
		b.user(at+"/mine", userText+"data in "+v.Name)
	}
}

// atomic writes what the kubelet's atomic writer does.
func (b *builder) atomic(at string, half bool) {
	b.meta(at+"/..2026_11_21_10_00_00.123456789/token", "a token")
	b.meta(at+"/..2026_11_21_10_00_00.123456789/dir/key", "a key")
	b.link(at+"/..data", "..2026_11_21_10_00_00.123456789", tagMeta)
	b.link(at+"/token", "..data/token", tagMeta)
	b.link(at+"/dir", "..data/dir", tagMeta)
	if half {
		b.meta(at+"/..2026_11_21_10_00_01.234567891/token", "a newer token")
		b.link(at+"/..data_tmp", "..2026_11_21_10_00_01.234567891", tagMeta)
	}
}

// tellPods writes the list of live pods. What is made after it is younger.
func (b *builder) tellPods() {
	var lines []string
	for _, p := range b.Pods {
		if p.Life == live {
			lines = append(lines, p.UID)
		}
	}
	items := make([]map[string]any, len(lines))
	for i, uid := range lines {
		meta := map[string]any{"name": fmt.Sprint("pod", i), "namespace": "default", "uid": uid}
		items[i] = map[string]any{"metadata": meta}
		if b.PodsFrom == "crictl" {
			items[i]["id"], items[i]["state"] = fmt.Sprint(i), "SANDBOX_NOTREADY"
			items[i]["labels"] = map[string]any{"io.kubernetes.pod.name": meta["name"], "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": uid}
		}
	}
	doc := map[string]any{"items": items}
	if b.PodsFrom == "list" {
		doc["apiVersion"], doc["kind"] = "v1", "PodList"
	}
	text, err := json.Marshal(doc)
	must(err)
	if b.PodsFrom == "lines" {
		text = []byte(strings.Join(lines, "\n") + "\n")
	}
	b.user(b.podFile, string(text))
	written := time.Now()
	must(os.Chtimes(b.podFile, written, written))
	for slices.ContainsFunc(b.Pods, func(p pod) bool { return p.Life == unknown }) {
		// The clock that files are stamped by ticks slowly.
		var now unix.Timespec
		must(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
		if time.Unix(now.Unix()).After(written) {
			break
		}
		time.Sleep(time.Millisecond)
	}
}
