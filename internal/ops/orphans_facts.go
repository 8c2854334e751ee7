package ops

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
)

// A fact is a line: what it is about, quoted, and what that is. Facts about a path are
// of what is there; about a path with mounts on it, of the mounts.
func fact(about, format string, args ...any) string {
	return strconv.Quote(about) + ": " + fmt.Sprintf(format, args...)
}

// Facts that are not about a path.
const (
	factNode = "node"
	factRoot = "root"
	factBoot = "boot"
)

// facts are what the steps of a leftover rest on: which node this is, and what each
// thing is that a step is about. Nothing of a volume is asked.
func (g *gc) facts(o *node.Leftover, table *mounts.Table) []string {
	boot, err := g.host.Devices.BootID()
	if err != nil {
		boot = err.Error()
	}
	out := []string{fact(factNode, "%s", g.host.NodeName), fact(factRoot, "%s", g.host.Layout.Root), fact(factBoot, "%s", boot)}
	about := []string{o.Path}
	for _, s := range o.Steps {
		about = append(about, s.Target)
	}
	slices.Sort(about)
	for _, path := range slices.Compact(about) {
		out = append(out, g.factsOf(path, table)...)
	}
	return out
}

func (g *gc) factsOf(path string, table *mounts.Table) []string {
	if stack := table.At(path); len(stack) > 0 {
		var words []string
		for _, m := range stack {
			words = append(words, g.mountFact(m))
		}
		return []string{fact(path, "%s", mountedFact+strings.Join(words, "; "))}
	}
	info, err := g.conf.Root.Stat(path)
	if err != nil {
		return nil // what is not there is no fact; a step about it is
	}
	text := fmt.Sprintf("%s, inode %d", info.Type, info.Ino)
	if !info.Birth.IsZero() {
		text += ", born " + info.Birth.UTC().Format(time.RFC3339Nano)
	}
	switch info.Type {
	case safefs.Symlink:
		target, err := g.conf.Root.Readlink(path)
		text += fmt.Sprintf(", to %q %v", target, errText(err))
	case safefs.File:
		data, err := g.conf.Root.ReadFile(path, 1<<20)
		text += fmt.Sprintf(", %d bytes, sha256 %x%s", info.Size, sha256.Sum256(data), errText(err))
	}
	return []string{fact(path, "%s", text)}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// mountedFact begins a fact about mounts.
const mountedFact = "mounted: "

func (g *gc) mountFact(m mounts.Mount) string {
	text := fmt.Sprintf("mount %d of %s %s from %s, %s", m.ID, m.Device(), m.Root, m.Source, m.FSType)
	if d, err := g.host.Devices.ByNumber(m.Major, m.Minor); err == nil {
		text += fmt.Sprintf(", disk %s sequence %d", d.Name, d.DiskSeq)
	}
	return text
}

// byAbout takes facts apart.
func byAbout(facts []string) map[string]string {
	out := map[string]string{}
	for _, f := range facts {
		quoted, err := strconv.QuotedPrefix(f)
		if err != nil {
			continue // nobody's fact: that it is missing is told
		}
		about, _ := strconv.Unquote(quoted)
		out[about] = strings.TrimPrefix(f[len(quoted):], ": ")
	}
	return out
}

// factsChanged says which of the facts of now are not those of a plan. What is gone
// meanwhile is no change, nor is what a mount has gone from: a run that was killed
// leaves it so, and the steps that are left are the plan's.
func factsChanged(plan, now []string) []string {
	was, is := byAbout(plan), byAbout(now)
	var out []string
	for _, about := range slices.Sorted(maps.Keys(is)) {
		old, ok := was[about]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s is %s, of which the plan says nothing", about, is[about]))
		case old != is[about] && (!strings.HasPrefix(old, mountedFact) || strings.HasPrefix(is[about], mountedFact)):
			out = append(out, fmt.Sprintf("%s was %s and is %s", about, old, is[about]))
		}
	}
	return out
}

// changed says what is not any more as a plan has it, by a plan of now.
func changed(plan, now api.Orphan) []string {
	if now.Verdict != api.VerdictOrphan {
		return []string{fmt.Sprintf("it is %s now: %s", now.Verdict, now.Reason)}
	}
	out := factsChanged(plan.Facts, now.Facts)
	for _, s := range now.Stays {
		if !slices.ContainsFunc(plan.Stays, func(o api.Stay) bool { return o.Path == s.Path && o.BlockedBy == s.BlockedBy }) {
			out = append(out, fmt.Sprintf("%s stays now: %s", s.Path, s.Reason))
		}
	}
	rest := plan.Steps
	for _, s := range now.Steps {
		i := slices.IndexFunc(rest, func(o api.Step) bool { return sameStep(o, s) })
		if i < 0 {
			return append(out, fmt.Sprintf("it takes a step that the plan does not have there: %s %s", s.Action, s.Target))
		}
		rest = rest[i+1:]
	}
	return out
}

func sameStep(a, b api.Step) bool {
	return a.Action == b.Action && a.Target == b.Target && slices.Equal(a.Args, b.Args)
}

// onlyPlanned lets a live run do what was planned for a leftover, and nothing else. A
// driver does its part in its own way: what it leaves of what it was called for is
// taken away as far as that is empty.
func onlyPlanned(steps []api.Step, then act.Hook) act.Hook {
	return func(p act.Point, n int, s api.Step) error {
		ok := slices.ContainsFunc(steps, func(o api.Step) bool {
			return sameStep(o, s) || o.Action == "call" && o.Target == s.Target && slices.Contains([]string{"rmdir", "unlink", "unmount"}, s.Action)
		})
		if !ok {
			return api.Errorf(api.ErrRefused, "it is no step of the plan: the node has changed since").
				WithNext("look again: kvol gc-orphans")
		}
		if then == nil {
			return nil
		}
		return then(p, n, s)
	}
}

// ofThisNode refuses a plan that was made elsewhere.
func (g *gc) ofThisNode() error {
	own := map[string]string{factNode: g.host.NodeName, factRoot: g.host.Layout.Root}
	for i, o := range g.req.Plan {
		if o.Verdict != api.VerdictOrphan || len(o.Steps) == 0 {
			continue
		}
		was := byAbout(o.Facts)
		for _, about := range []string{factNode, factRoot} {
			if was[about] != own[about] {
				return api.Errorf(api.ErrRefused, "the plan is of another %s: item %d says %q, and this is %q", about, i+1, was[about], own[about]).
					WithNext("make one here: kvol gc-orphans -o json > plan.json")
			}
		}
	}
	return nil
}
