package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/node/alive"
)

// life is what the sources of live pods say; they are asked once a command, and only
// if something depends on it.
type life struct {
	once sync.Once
	sets *alive.Sets
	err  error
}

// lifeLimit is for each of the two things that are asked: which pods live, and what
// they claim. Who does not answer by then has not proven that anybody lives.
const lifeLimit = time.Second

func (op *operation) whoLives(ctx context.Context) (*alive.Sets, error) {
	op.life.once.Do(func() {
		op.life.sets, op.life.err = alive.Look(ctx, op.host, alive.Options{From: op.req.PodsFrom, Timeout: lifeLimit, LifeOnly: true})
	})
	return op.life.sets, op.life.err
}

// gateLivePod refuses to take a volume from a pod that is proven to live, and to give
// one to a pod that the kubelet does not know, without the operator's word for it.
// That nobody can tell is no reason: kvol is needed most where nobody answers.
func (op *operation) gateLivePod(ctx context.Context) error {
	switch {
	case op.plugin == nil:
		return nil
	case op.verb == Publish, op.verb == Setup:
		return op.gateUnmanaged(ctx)
	case needsSpec[op.verb], op.req.AllowActivePod:
		return nil
	}
	uids, err := op.deprived(ctx)
	if err != nil || len(uids) == 0 {
		return err
	}
	sets, err := op.whoLives(ctx)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if lives, evidence := sets.Lives(uid); lives {
			return op.active(sets, uid, evidence)
		}
	}
	return nil
}

// deprived are the pods that the verb would take the volume from: of those that have a
// pod, this one if it has the volume; of the others all that have it, or claim it and
// so are about to.
func (op *operation) deprived(ctx context.Context) ([]string, error) {
	if needsPod[op.verb] {
		uid, plugin := op.req.Pod.UID, op.plugin.GetPluginName()
		has := len(op.find.InPod(uid, op.name, plugin)) > 0 ||
			slices.ContainsFunc(op.find.OfPod(uid, plugin), func(r node.Ref) bool { return r.Volume == op.name }) // a map without its link
		if !has {
			return nil, nil
		}
		return []string{uid}, nil
	}
	var uids []string
	for _, ref := range op.find.Pods(op.plugin.GetPluginName(), op.ref()) {
		uids = append(uids, ref.PodUID)
	}
	sets, err := op.whoLives(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lifeLimit)
	defer cancel()
	volumes, err := sets.NodeVolumes(ctx)
	if err != nil {
		return uids, nil //nolint:nilerr // what is not known is no proof of life
	}
	for _, claim := range volumes.Claims {
		if claim.PV == op.name && !claim.Finished && !slices.Contains(uids, claim.PodUID) {
			uids = append(uids, claim.PodUID)
		}
	}
	return uids, nil
}

// active refuses a verb for the sake of a pod, with what was said of it.
func (op *operation) active(sets *alive.Sets, uid string, evidence []api.Evidence) error {
	who, stop := "pod "+uid, "stop what runs in it"
	if pod, ok := sets.Pod(uid); ok {
		who += fmt.Sprintf(" (%s/%s)", pod.Namespace, pod.Name)
		stop = fmt.Sprintf("kubectl delete pod -n %s %s", act.Quote(pod.Namespace), act.Quote(pod.Name))
	}
	err := api.Errorf(api.ErrRefused, "%s lives and uses this volume: what runs in it would lose its data under its feet, and the kubelet would not know why", who)
	for _, e := range evidence {
		if e.Says == api.SaysAlive {
			err.Details = append(err.Details, strings.TrimSuffix(e.Source+" says it lives: "+e.Detail, ": "))
		}
	}
	return err.WithNext("end the pod first: %s; or take the risk: %s", stop, op.withFlag("--allow-active-pod"))
}

// gateUnmanaged is about a pod that the kubelet of this root directory answers for and
// does not know.
func (op *operation) gateUnmanaged(ctx context.Context) error {
	if op.req.AllowUnmanagedPod {
		return nil
	}
	running, err := op.host.Kubelet(ctx)
	if err != nil || running.PID == 0 {
		return err
	}
	if path := op.paths(ctx).PodVolumePath; path != "" && op.had(path) {
		return nil // it was let once
	}
	sets, err := op.whoLives(ctx)
	if err != nil {
		return err
	}
	_, evidence := sets.Lives(op.req.Pod.UID)
	if !slices.ContainsFunc(evidence, func(e api.Evidence) bool { return e.Source == alive.SourceKubelet && e.Says == api.SaysAbsent }) {
		return nil
	}
	return api.Errorf(api.ErrRefused, "the kubelet of this node (pid %d) answers and does not know pod %s: its housekeeping would take apart what is published for it", running.PID, op.req.Pod.UID).
		WithNext("look for the pod: kubectl get pods -A -o wide; or take the risk: %s", op.withFlag("--allow-unmanaged-pod"))
}

// withFlag is this command with one more flag.
func (op *operation) withFlag(flag string) string {
	if op.req.Spec != nil {
		return "the same command with " + flag
	}
	pod := ""
	if needsPod[op.verb] {
		pod = " --pod-uid " + op.req.Pod.UID
	}
	return fmt.Sprintf("kvol %s %s%s %s", op.verb, act.Quote(op.word()), pod, flag)
}
