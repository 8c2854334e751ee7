package states

import (
	"os"
	"strings"
)

// call makes up what is asked of kvol.
func (g *generator) call() call {
	c := call{Verb: pick(g, "gc-orphans", "gc-orphans", "gc-orphans", "gc-orphans", "teardown", "teardown", "unpublish", "unpublish", "unmount-device", "detach")}
	if verbs := os.Getenv("KVOL_STATES_VERBS"); verbs != "" {
		c.Verb = pick(g, strings.Fields(verbs)...)
	}
	c.Vol, c.Pod = g.IntN(len(g.Vols)), g.IntN(len(g.Pods))
	for _, e := range g.Elements { // rather a pod that has it
		if e.Kind == publish && e.Vol == c.Vol && !g.one(3) {
			c.Pod = e.Pod
		}
	}
	c.Flags = append(c.Flags, "-o", pick(g, "json", "json", "json", "table", "yaml"))
	if c.Verb == "gc-orphans" {
		g.gcFlags(&c)
	} else {
		g.verbFlags(&c)
	}
	if g.one(8) {
		c.Flags = append(c.Flags, "--lazy")
	}
	if g.one(12) {
		c.Flags = append(c.Flags, "--force-umount")
	}
	if g.one(5) {
		c.Flags = append(c.Flags, "--without-driver")
	}
	if g.one(5) {
		c.Flags = append(c.Flags, "--discard-ephemeral")
		if g.one(2) {
			c.Flags = append(c.Flags, "--quarantine")
		}
	}
	if g.one(20) {
		c.With = pick(g, "same", "list", "gc")
	}
	if g.one(30) {
		c.Flags = append(c.Flags, pick(g, "-v", "-vv"))
	}
	return c
}

func (g *generator) gcFlags(c *call) {
	c.Vol, c.Pod = -1, -1
	if !g.one(8) {
		c.Flags = append(c.Flags, "--apply")
	} else if g.one(2) {
		c.Flags = append(c.Flags, "--exit-code")
	}
	if !g.one(15) {
		c.Flags = append(c.Flags, "--min-age", "0")
	}
	if g.one(3) {
		c.Flags = append(c.Flags, "--assert-no-pods")
	}
	if g.one(10) {
		c.Flags = append(c.Flags, "--max", pick(g, "1", "2"))
	}
	if g.one(4) {
		c.Flags = append(c.Flags, "--keep-going")
	}
}

func (g *generator) verbFlags(c *call) {
	v := g.Vols[c.Vol]
	c.Name = pick(g, "name", "name", "name", "path", "nothing")
	switch {
	case v.csi() && g.one(3):
		c.Name = "handle"
	case v.disk() && g.one(4):
		c.Name = "device"
	case g.one(5):
		c.Name = "file"
	}
	if g.one(6) {
		c.Flags = append(c.Flags, "--dry-run")
	}
	if g.one(6) {
		c.Flags = append(c.Flags, "--must-exist")
	}
	if g.one(4) {
		c.Flags = append(c.Flags, "--allow-active-pod")
	}
}
