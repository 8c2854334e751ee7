package states

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is how a run of kvol ended.
type outcome struct {
	args           []string
	code           int
	killed         bool
	stdout, stderr string
	took, limit    time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("kvol %q\nexit code %d after %v\n%s%s", o.args, o.code, o.took.Round(time.Millisecond), cut(o.stdout), cut(o.stderr))
}

func cut(s string) string {
	if len(s) > 2000 {
		return s[:1000] + "\n…\n" + s[len(s)-1000:] + "\n"
	}
	return s
}

// program is kvol, and what its commands have for flags.
type program struct {
	path, killable string
	helps          map[string]string
}

func newProgram(path, killable string) *program {
	p := &program{path, killable, map[string]string{}}
	for _, verb := range []string{"gc-orphans", "teardown", "unpublish", "unmount-device", "detach"} {
		out, err := exec.Command(path, verb, "--help").Output()
		must(err)
		p.helps[verb] = string(out)
	}
	return p
}

// known is the call without the flags that its command does not have.
func (p *program) known(c call) call {
	var flags []string
	for i := 0; i < len(c.Flags); i++ {
		words := c.Flags[i : i+1]
		if i+1 < len(c.Flags) && !strings.HasPrefix(c.Flags[i+1], "-") {
			words = c.Flags[i : i+2]
			i++
		}
		if name := words[0]; !strings.HasPrefix(name, "--") || strings.Contains(p.helps[c.Verb], name+" ") {
			flags = append(flags, words...)
		}
	}
	c.Flags = flags
	return c
}

// args are the words of a call.
func (p *program) args(b *builder, c call) []string {
	args := []string{c.Verb}
	if c.Vol >= 0 {
		args = append(args, b.naming(c)...)
	}
	if c.Verb == "unpublish" || c.Verb == "teardown" {
		args = append(args, "--pod-uid", b.Pods[c.Pod].UID)
	}
	for _, word := range c.Flags {
		args = append(args, word)
		if word == "--quarantine" {
			args = append(args, b.dir+"/quarantine")
		}
	}
	if b.PodsFrom != "" {
		args = append(args, "--pods-from", "file:"+b.podFile)
	}
	return append(args, "--root-dir", b.root, "--state-dir", b.dir+"/state", "--run-dir", b.dir+"/run", "--node-name", "node1",
		"--timeout", b.limit().String(), "--probe-timeout", "100ms", "--lock-timeout", "1s")
}

// limit is the time-out of a run: short where something does not answer.
func (b *builder) limit() time.Duration {
	hung := b.Driver == "hangs" || slices.ContainsFunc(b.Elements, func(e element) bool { return e.How == "hung" })
	if hung {
		return 3 * time.Second
	}
	return 15 * time.Second
}

// naming is how the call names the volume.
func (b *builder) naming(c call) []string {
	v := b.Vols[c.Vol]
	switch c.Name {
	case "path":
		if c.Verb == "unmount-device" || c.Verb == "detach" {
			if at := b.globalAt(v); at != "" {
				return []string{at}
			}
		}
		if v.raw() {
			return []string{b.pod(c.Pod) + "/volumeDevices/" + v.plugin() + "/" + v.Name}
		}
		return []string{b.at(c.Pod, v)}
	case "handle":
		if v.csi() {
			return []string{v.Driver + "^" + v.Handle}
		}
	case "device":
		if v.disk() {
			return []string{b.disks[v.Disk].dev}
		}
	case "nothing":
		return []string{"no-such-volume"}
	case "file":
		if path := b.dir + "/data/" + v.Name + ".json"; b.tags[path] != "" {
			return []string{"-f", path}
		}
	}
	return []string{"--volume", v.Name}
}

// document writes the PersistentVolume of a volume, where it has one.
func (b *builder) document(v volume) {
	spec := map[string]any{"capacity": map[string]any{"storage": "1Mi"}, "accessModes": []string{"ReadWriteOnce"}, "volumeMode": "Filesystem"}
	if v.raw() {
		spec["volumeMode"] = "Block"
	}
	switch {
	case v.Kind == localDir:
		spec["local"] = map[string]any{"path": b.source(v)}
	case v.Kind == localDisk || v.Kind == localRaw:
		spec["local"] = map[string]any{"path": b.disks[v.Disk].dev}
	case v.csi() && v.Kind != csiInline:
		spec["csi"] = map[string]any{"driver": v.Driver, "volumeHandle": v.Handle}
	default:
		return
	}
	if spec["local"] != nil {
		term := map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{"node1"}}}}
		spec["nodeAffinity"] = map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{term}}}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": v.Name}, "spec": spec})
	must(err)
	b.user(b.dir+"/data/"+v.Name+".json", string(text))
}

// run runs kvol on a node and waits for its end; one that does not come is brought
// about, and judged.
func (p *program) run(b *builder, c call) outcome {
	o := outcome{args: p.args(b, c), limit: b.limit()}
	path, env := p.path, append(os.Environ(), "KVOL_CONFIG=", "NO_COLOR=1")
	if c.Kill != "" {
		path, env = p.killable, append(env, "KVOL_STATES_KILL="+c.Kill)
	}
	cmd := exec.Command(path, o.args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.WaitDelay = &stdout, &stderr, env, time.Second
	start := time.Now()
	must(cmd.Start())
	late := time.AfterFunc(o.limit+5*time.Second, func() {
		_ = cmd.Process.Kill() // which it does not feel while it waits for what hangs
		b.release()
	})
	err := cmd.Wait()
	late.Stop()
	o.took, o.stdout, o.stderr = time.Since(start), stdout.String(), stderr.String()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		panic(err)
	}
	if failed {
		o.code, o.killed = exit.ExitCode(), exit.ExitCode() < 0
	}
	return o
}

// beside runs something else on the node at the same time.
func (p *program) beside(b *builder, c call) (wait func() outcome) {
	if c.With == "" {
		return func() outcome { return outcome{} }
	}
	other := c
	other.With = ""
	switch c.With {
	case "list":
		other = call{Verb: "list-mounts", Vol: -1, Pod: -1}
	case "gc":
		other = call{Verb: "gc-orphans", Vol: -1, Pod: -1, Flags: []string{"-o", "json"}}
	}
	var o outcome
	var wg sync.WaitGroup
	wg.Go(func() { o = p.run(b, other) })
	return func() outcome { wg.Wait(); return o }
}
