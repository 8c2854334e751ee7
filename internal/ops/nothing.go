package ops

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// nothingThere answers a name that nothing on the node has. Already is said only
// when no global mount is left that could be the volume's all the same.
func (op *operation) nothingThere(ctx context.Context) error {
	if op.verb == Expand {
		return api.Errorf(api.ErrNotFound, "nothing on this node has that name, and a volume grows where it is mounted").
			WithNext("see what there is: kvol list-mounts")
	}
	proven := false
	if slices.Contains(rungs[op.verb], Detach) {
		// A device is somebody's all the same when nothing tells of which volume it is.
		dev, err := op.namedDevice(ctx)
		if proven = err == nil && dev != ""; proven {
			err = op.unused(ctx, dev)
		}
		if err != nil {
			return err
		}
	}
	if op.verb != Unpublish && !proven {
		if err := op.noCandidate(""); err != nil {
			return err
		}
	}
	if err := op.inTheWay(ctx); err != nil {
		return err
	}
	if op.req.MustExist {
		return api.Errorf(api.ErrNotFound, "%s, and --must-exist was given", op.nobody()).
			WithNext("see what there is: kvol list-mounts")
	}
	for _, rung := range rungs[op.verb] {
		op.results = append(op.results, api.Result{
			Op: string(rung), Volume: op.name, PodUID: op.req.Pod.UID, Outcome: api.OutcomeAlready,
			Reason: op.nobody(), Paths: api.PathSet{Volume: op.name, Metadata: []string{}}, Steps: []api.Step{},
		})
	}
	return nil
}

// nobody says what it is that has not the name: the pod alone, where others have it.
func (op *operation) nobody() string {
	named := op.find.Named(op.name, "")
	if len(named) == 0 || op.req.Pod.UID == "" {
		return "nothing on this node has that name"
	}
	var pods []string
	for _, r := range named {
		if r.PodUID != "" && r.PodUID != op.req.Pod.UID && !slices.Contains(pods, r.PodUID) {
			pods = append(pods, r.PodUID)
		}
	}
	none := fmt.Sprintf("pod %s has no volume of that name", op.req.Pod.UID)
	if len(pods) > 0 {
		none += " (pods that have one: " + api.Words(api.Few(pods)) + ")"
	}
	return none
}

// inTheWay refuses to call a volume gone while something that is no directory has its
// name where its directory would be, or lies on the way to there.
func (op *operation) inTheWay(ctx context.Context) error {
	root, err := op.host.Root()
	if err != nil {
		return err
	}
	places, err := op.couldBe(ctx, root)
	if err != nil {
		return err
	}
	for _, path := range places {
		if path == "" {
			continue // its volumes have none
		}
		info, err := root.Stat(path)
		switch {
		case errors.Is(err, api.ErrNotFound):
		case err != nil:
			return err
		case info.Type != safefs.Dir:
			return api.Errorf(api.ErrRefused, "is a %s where a directory of the volume belongs", info.Type).At(path).
				WithNext("find out who made it (ls -ld %s) and move it away", act.Quote(path))
		}
	}
	return nil
}

// couldBe are the places of a volume of that name: those of each of kvol's plugins, and
// those in the pod's directory of any plugin.
func (op *operation) couldBe(ctx context.Context, root *safefs.Root) (places []string, err error) {
	for _, p := range op.mgr.All() {
		set, err := plugins.Where{Plugin: p, Ref: plugins.Ref{Name: op.name}, PodUID: op.req.Pod.UID}.Paths(ctx, op.host.Layout.Root)
		if err != nil {
			continue // a name that this plugin's volumes cannot have
		}
		places = append(places, set.PodVolumePath, set.GlobalMountPath)
	}
	dir, err := op.host.Layout.PodVolumesDir(op.req.Pod.UID)
	if err != nil || paths.ValidVolumeName(op.name) != nil {
		return places, nil //nolint:nilerr // no pod is named, or no name
	}
	entries, err := root.ReadDir(dir)
	if err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, safefs.ErrIsMount) {
		return nil, err
	}
	for _, e := range entries {
		if e.Type == safefs.Dir {
			places = append(places, filepath.Join(dir, e.Name, op.name))
		}
	}
	return places, nil
}

// noCandidate refuses to call a volume gone while a global mount is there that
// nothing gives a name to, and to let one go that is known by its handle alone while a
// pod has one without.
func (op *operation) noCandidate(plugin string) error {
	word := op.name
	if strings.Contains(op.volumeName, "^") {
		word = op.volumeName
	}
	all := op.find.Candidates(word, plugin)
	if strings.Contains(op.name, "^") && slices.Contains(rungs[op.verb], Detach) {
		all = append(all, op.find.Nameless()...)
	}
	left := slices.DeleteFunc(all, func(r node.Ref) bool {
		e, err := op.run.Entry(r.Path)
		return err == nil && !e.Present // this operation itself has removed it
	})
	if len(left) == 0 {
		return nil
	}
	e := api.Errorf(api.ErrUncertain, "%s could be of this volume: neither path nor metadata give the name", api.Count(len(left), "mount", "mounts"))
	for _, c := range left {
		e.Details = append(e.Details, fmt.Sprintf("%s %s", c.Plugin, c.Path))
	}
	return e.WithNext("name the volume so that it can be told: -f FILE, or its path as VOLUME")
}
