package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/kubelet"
	"github.com/kvol/kvol/internal/host/probe"

	"github.com/spf13/pflag"
)

// locate settles what the kubelets of this node decide: the root directory and the
// node's name where they are not given, and in whose view of the machine kvol works.
// It is that of the kubelet whose root directory it is: what is mounted elsewhere that
// kubelet does not see, and what it mounted is not seen elsewhere.
func (a *app) locate() error {
	if a.handed != nil {
		return a.arrived()
	}
	s, err := a.survey()
	if err != nil {
		return err
	}
	defer s.close()
	owner, err := s.owner()
	if err != nil && !a.anyRoot {
		return err
	}
	if owner != nil {
		a.adopt(owner.Process)
	}
	switch {
	case a.mountNamespace != 0:
		if owner != nil && a.changes && !s.here(owner) {
			return api.Errorf(api.ErrRefused, "the kubelet of this root directory (pid %d) is in another mount namespace than process %d, so it would not see what is done there", owner.PID, a.mountNamespace).
				At(owner.RootDir).WithNext("work where the kubelet is: leave --mount-namespace away")
		}
		return a.enter(a.mountNamespace, false)
	case owner != nil && !s.here(owner):
		a.rootDir = owner.RootDir // what it is called there
		err := a.enter(owner.PID, true)
		if a.changes || errors.Is(err, api.ErrTimeout) {
			return err
		}
		a.log.Warn(fmt.Sprintf("the kubelet (pid %d) is in another mount namespace; what it sees differs from what is shown here: %v", owner.PID, err))
	}
	return nil
}

// changing says whether a command is of those that can change the node, which have one
// of these flags, and whether this run of it will.
func changing(f *pflag.FlagSet) (can, will bool) {
	if f.Lookup("apply") != nil {
		will, _ = f.GetBool("apply")
		return true, will
	}
	dry, err := f.GetBool("dry-run")
	return err == nil, err == nil && !dry
}

// foresee settles what [app.locate] would, to be shown: it goes nowhere, and several
// kubelets are not an error.
func (a *app) foresee() error {
	s, err := a.survey()
	if err != nil {
		return err
	}
	defer s.close()
	owner, err := s.owner()
	switch {
	case errors.Is(err, api.ErrRefused):
		a.rootDir, a.origins["root-dir"] = "", "several kubelets"
	case owner != nil:
		a.adopt(owner.Process)
	}
	return nil
}

// given says that a setting has not its default.
func (a *app) given(flag string) bool { return a.origins[flag] != "default" }

// adopt takes what is not given from the kubelet.
func (a *app) adopt(k kubelet.Process) {
	origin := fmt.Sprintf("kubelet (pid %d)", k.PID)
	if !a.given("root-dir") {
		a.rootDir, a.origins["root-dir"] = k.RootDir, origin
	}
	if !a.given("node-name") && k.NodeName != "" {
		a.nodeName, a.origins["node-name"] = k.NodeName, origin
	}
}

// survey is what a look at the node's kubelets found.
type survey struct {
	a      *app
	base   string // in /proc: in whose view the paths of the command line are
	ns     string // its mount namespace
	helper *probe.Helper
	found  []*runs
	told   bool // which directories they have is known
}

// runs is a running kubelet and its root directory.
type runs struct {
	kubelet.Process
	dir kubelet.Dir
	err error
}

func (a *app) survey() (*survey, error) {
	s := &survey{a: a, base: filepath.Join(a.procRoot, "self"), helper: probe.New("")}
	if a.mountNamespace != 0 {
		s.base = filepath.Join(a.procRoot, strconv.Itoa(a.mountNamespace))
	}
	all, err := kubelet.Find(a.procRoot)
	if err != nil {
		return nil, err
	}
	s.ns, err = os.Readlink(s.base + "/ns/mnt")
	if a.mountNamespace != 0 && err != nil {
		return nil, noView(a.mountNamespace, err)
	}
	for _, k := range all {
		s.found = append(s.found, &runs{Process: k})
	}
	// Most nodes have one kubelet, which sees what we see: nothing more is to be known.
	s.told = len(all) > 1 || len(all) == 1 && (!s.here(s.found[0]) || a.given("root-dir") && all[0].NodeName != "")
	if s.told {
		for _, k := range s.found {
			k.dir, k.err = s.resolve(filepath.Join(a.procRoot, strconv.Itoa(k.PID)), k.RootDir)
		}
	}
	return s, nil
}

func (s *survey) close() { s.helper.Close() }

// here says that a kubelet sees what is seen in the view that we are asked for.
func (s *survey) here(k *runs) bool {
	if s.a.mountNamespace != 0 {
		return k.MountNS == s.ns
	}
	return !k.OtherNamespace
}

// resolve gives the directory that a process means by a path.
func (s *survey) resolve(proc, path string) (kubelet.Dir, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(s.a.probeTimeout, time.Until(s.a.deadline)))
	defer cancel()
	return kubelet.Resolve(ctx, s.helper, proc, path)
}

// owner is the kubelet whose root directory kvol works in, nil where none runs on it.
func (s *survey) owner() (*runs, error) {
	if !s.a.given("root-dir") {
		return s.only()
	}
	if !s.told {
		return nil, nil // none, or whether it is its own makes no difference
	}
	named, err := s.resolve(s.base, s.a.rootDir)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, nil // who opens it says so
	}
	var owner *runs
	for _, k := range s.found {
		switch {
		case missing:
			// Named as it is called where the kubelet is.
			if s.here(k) || filepath.Clean(s.a.rootDir) != filepath.Clean(k.RootDir) {
				continue
			}
		case k.err != nil && !unlike(k.err) && s.a.changes:
			return nil, api.Errorf(api.ErrRefused, "whether the kubelet (pid %d) works in this directory cannot be known: %w", k.PID, k.err).
				At(s.a.rootDir).WithNext("run it as root, with all capabilities")
		case k.err != nil || k.dir != named:
			continue
		}
		if owner == nil || s.here(k) {
			owner = k
		}
	}
	return owner, nil
}

// unlike says that a directory which could not be opened is not one that could.
func unlike(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, api.ErrTimeout) }

// only is the kubelet of this node, if all that run have the same root directory. In
// a view that was asked for only those count that have it too.
func (s *survey) only() (*runs, error) {
	var owner *runs
	var several []string
	differ := false
	for _, k := range s.found {
		if s.a.mountNamespace != 0 && !s.here(k) {
			continue
		}
		several = append(several, fmt.Sprintf("kubelet pid %d: root directory %s", k.PID, act.Quote(k.RootDir)))
		if !s.here(k) {
			several[len(several)-1] += ", in a mount namespace of its own"
		}
		switch {
		case owner == nil:
			owner = k
		case k.err != nil || owner.err != nil || k.dir != owner.dir:
			differ = true
		case s.here(k):
			owner = k
		}
	}
	if !differ {
		return owner, nil
	}
	err := api.Errorf(api.ErrRefused, "%d kubelets run here and they have different root directories, so it cannot be told which is meant", len(several)).
		WithNext("name the one: --root-dir DIR; or the kubelet that has it: --mount-namespace PID")
	err.Details = several
	return nil, err
}
