package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// listed is the tree of a list that has no other: a line an item, with the columns of its
// table.
func listed[T any](columns []column[T], items []T) []*branch {
	s := &shape{}
	var shown []column[T]
	for _, c := range columns {
		if !c.wide {
			shown = append(shown, c)
		}
	}
	var out []*branch
	for _, item := range items {
		b := &branch{shape: s}
		for _, c := range shown {
			b.parts = append(b.parts, cell(c.cell(item)))
		}
		out = append(out, b)
	}
	return out
}

// grouped puts the branches of items below one for each key, in their order.
func grouped[T any, K comparable](items []T, key func(T) K, head, child func(T) *branch) []*branch {
	var out []*branch
	heads := map[K]*branch{}
	for _, item := range items {
		k := key(item)
		if heads[k] == nil {
			heads[k] = head(item)
			out = append(out, heads[k])
		}
		heads[k].add(child(item))
	}
	return out
}

// stepBranches are the steps of a plan, or of an operation, where the reason is how each
// of them ended.
func stepBranches(steps []api.Step, s *shape) []*branch {
	values := &shape{}
	var out []*branch
	for _, step := range steps {
		b := &branch{shape: s, parts: []string{number(step.N) + " " + cell(step.Action)}}
		b.note = Line(step.Reason)
		if s.mood > 0 {
			outcome, failure, _ := strings.Cut(step.Reason, " ")
			if colors[outcome] != "" {
				b.note = Line(failure)
			} else {
				outcome = ""
			}
			b.parts = append(b.parts, cell(outcome))
		}
		b.parts = append(b.parts, cell(step.Target))
		if len(step.Args) > 0 {
			b.parts = append(b.parts, cell(strings.Join(step.Args, " ")))
		}
		for _, v := range step.Values {
			b.add(&branch{shape: values, parts: []string{cell(v.Key), cell(v.Value), cell(v.From)}})
		}
		out = append(out, b)
	}
	return out
}

// planned is the shape of steps that are not done yet, or of which that is not told.
func planned() *shape { return &shape{drop: []int{2}} }

// operationTree has the steps below each operation.
func operationTree(items []api.Operation, o Options) []*branch {
	uid := podUIDs(items, Table, func(o api.Operation) string { return o.PodUID }, o.Pods...)
	op, step := &shape{mood: 2, drop: []int{4, 0}}, &shape{mood: 1, drop: []int{3}}
	var out []*branch
	for _, o := range items {
		out = append(out, &branch{
			shape: op, note: Line(o.Error), children: stepBranches(o.Steps, step),
			parts: []string{o.Time.Local().Format(time.RFC3339), cell(o.Verb), cell(o.Outcome), cell(o.Volume), podOf(uid(o.PodUID), "", "")},
		})
	}
	return out
}

// podOf names a pod by what is known of it.
func podOf(uid, namespace, name string) string {
	switch {
	case name != "":
		return "pod " + cell(namespace+"/"+name)
	case uid != "":
		return "pod " + cell(uid)
	}
	return none
}

// resultTree has what was done for each volume, and the steps of it.
func resultTree(items []api.Result, o Options) []*branch {
	uid := podUIDs(items, Table, func(r api.Result) string { return r.PodUID }, o.Pods...)
	volume, rung, step := &shape{}, &shape{mood: 1}, planned()
	return grouped(items, func(r api.Result) [3]string { return [3]string{r.Plugin, r.Volume, r.PodUID} },
		func(r api.Result) *branch {
			return &branch{shape: volume, parts: []string{"volume " + cell(r.Volume), cell(r.Plugin), podOf(uid(r.PodUID), "", "")}}
		},
		func(r api.Result) *branch {
			return &branch{shape: rung, parts: []string{cell(r.Op), cell(string(r.Outcome)), cell(resultPath(r))},
				note: Line(r.Reason), children: stepBranches(r.Steps, step)}
		})
}

// planTree has the steps below their volume and rung.
func planTree(p *api.Plan) []*branch {
	step := planned()
	return grouped(p.Parts, ofWhat, func(part api.PlanPart) *branch { return text(Line(ofWhat(part))) },
		func(part api.PlanPart) *branch {
			b := text(cell(part.Rung))
			b.add(stepBranches(part.Steps, step)...)
			return b
		})
}

// orphanTree has what was left below the pod that left it, and why it goes or stays.
func orphanTree(items []api.Orphan, o Options) []*branch {
	uid := podUIDs(items, Table, func(o api.Orphan) string { return o.PodUID }, o.Pods...)
	what, stay := &shape{mood: 1, drop: []int{3, 2}}, &shape{}
	return grouped(items, func(o api.Orphan) string { return o.PodUID },
		func(o api.Orphan) *branch {
			if o.PodUID == "" {
				return text("of no pod")
			}
			return text(podOf(uid(o.PodUID), o.Namespace, o.PodName))
		},
		func(o api.Orphan) *branch {
			b := &branch{shape: what, note: Line(o.Reason), parts: []string{
				cell(string(o.Kind)), cell(firstOf(o.Outcome, string(o.Verdict))), cell(firstOf(o.BlockedBy, canGo(o))), cell(o.Volume), cell(o.Path),
			}}
			for _, s := range o.Stays {
				reason := s.Reason
				if s.Next != "" {
					reason += "; " + s.Next
				}
				b.add(&branch{shape: stay, parts: []string{cell(s.BlockedBy), cell(s.Path)}, note: Line(reason)})
			}
			return b
		})
}

func canGo(o api.Orphan) string {
	if o.Verdict == api.VerdictOrphan && o.Outcome == "" && len(o.Steps) > 0 {
		return "can go"
	}
	return ""
}

// limitTree has the volumes that count below each limit.
func limitTree(items []api.Limit, _ Options) []*branch {
	s := &shape{}
	var out []*branch
	for _, l := range items {
		of := map[api.LimitState]string{api.Unlimited: "without a limit", api.LimitUnknown: "limit unknown"}[l.LimitState]
		if l.LimitState == api.Limited {
			of = fmt.Sprintf("of %d", l.Limit)
		}
		b := &branch{shape: s, parts: []string{cell(l.Plugin), cell(l.Key), fmt.Sprintf("%d attached", l.Attached), of}}
		for _, v := range l.Volumes {
			b.add(text(cell(v)))
		}
		out = append(out, b)
	}
	return out
}

// pluginTree has the rungs and the tools of each plugin.
func pluginTree(items []api.Info, _ Options) []*branch {
	s, ability := &shape{}, &shape{}
	var out []*branch
	for _, i := range items {
		b := &branch{shape: s, parts: []string{cell(i.Name), cell(i.Description)}}
		for _, list := range [][2]string{{"modes", strings.Join(i.AccessModes, ", ")}, {"rungs", strings.Join(i.Rungs, ", ")}} {
			if list[1] != "" {
				b.add(&branch{shape: ability, parts: []string{list[0], cell(list[1])}})
			}
		}
		if len(i.Tools) > 0 {
			list, tool := text("tools"), &shape{mood: 1}
			for _, t := range i.Tools {
				state := "ok"
				if !t.Present {
					state = "missing"
				}
				list.add(&branch{shape: tool, parts: []string{cell(t.Name), state, cell(firstOf(t.Path, t.Needed))}})
			}
			b.add(list)
		}
		out = append(out, b)
	}
	return out
}

// pathTree has the mount points of one volume.
func pathTree(p *api.PathSet, _ Options) []*branch {
	b, s := text("volume "+cell(p.Volume)+"  "+cell(p.Plugin)), &shape{}
	for _, at := range places(*p) {
		b.add(&branch{shape: s, parts: []string{at.what, cell(at.path)}})
	}
	return []*branch{b}
}

// inspectionTree is the tree of list-mounts with the devices below the file systems on
// top of it, and the metadata.
func inspectionTree(i *api.Inspection, o Options) []*branch {
	root := text(Line(i.SubjectKind) + " " + cell(i.Subject))
	t := newMountTree(i.Mounts, o)
	device := &shape{}
	byName := map[string]*branch{}
	listed := map[string]bool{} // by their numbers
	for _, d := range i.Devices {
		parts := []string{cell(firstOf(d.Path, d.Name)), cell(d.Type), size(d.Size)}
		if d.Backing != "" {
			parts = append(parts, cell(d.Backing))
		}
		byName[d.Name], listed[d.Number] = &branch{shape: device, parts: parts}, true
	}
	for _, d := range i.Devices {
		under := root
		for _, parent := range d.Parents {
			if byName[parent] != nil {
				under = byName[parent]
				break
			}
		}
		under.add(byName[d.Name])
		if t.on[d.Number] != nil {
			top := t.top(d.Number)
			top.parts = top.parts[1:] // the device has its line
			byName[d.Name].add(top)
		}
	}
	for _, number := range t.devices {
		if !listed[number] {
			root.add(t.top(number))
		}
	}
	root.add(t.rest()...)
	if len(i.Metadata) > 0 {
		list, s := text("metadata"), &shape{mood: 1}
		for _, m := range i.Metadata {
			list.add(&branch{shape: s, parts: []string{cell(m.Path), cell(m.State), cell(pairs(m.Data))}})
		}
		root.add(list)
	}
	for _, w := range i.Warnings {
		root.add(&branch{shape: &shape{}, parts: []string{"warning"}, note: Line(w)})
	}
	return []*branch{root}
}
