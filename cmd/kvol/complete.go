package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// glanceTime is how long a press of the Tab key may take: what is not known then is
// not offered. Tests have more of it.
var glanceTime = 300 * time.Millisecond

// tab is one press of the Tab key.
type tab struct {
	*app
	ctx  context.Context // until when there is time
	cmd  *cobra.Command
	args []string // before the word
	word string   // as far as it is typed
	// settled reads the settings, look what is on the node, once each.
	settled func() bool
	look    func() sight
}

// offers tell what a word may become, each perhaps with a tab and what it is, and what
// the shell is to do beside.
type offers func(tab) ([]string, cobra.ShellCompDirective)

// completing says that a shell asks what a word may become.
func completing(args []string) bool {
	return len(args) > 1 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// complete answers a shell. It has nothing to say but words, and never fails.
func (a *app) complete() int {
	root := a.root()
	root.InitDefaultHelpCmd()
	a.offer(root)
	root.SetArgs(a.args)
	root.SetOut(a.out)
	root.SetErr(io.Discard)
	// The library itself writes there what is wrong with the line.
	stderr := os.Stderr
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = null
		defer func() { os.Stderr = stderr; null.Close() }()
	}
	_ = root.Execute()
	_ = a.out.Flush()
	return api.ExitOK
}

// offer says of every argument and every flag what it may be.
func (a *app) offer(cmd *cobra.Command) {
	if len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = a.completer(arguments[cmd.Name()])
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		what := values[f.Name]
		if _, ok := f.Value.(*namesFlag); ok {
			what = list(what)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, a.completer(what)) // it is there, and seen once
		_, f.Usage = pflag.UnquoteUsage(f)
	})
	for _, sub := range cmd.Commands() {
		a.offer(sub)
	}
}

// completer offers what fits what is typed. Where the word may go on, no space follows.
func (a *app) completer(what offers) cobra.CompletionFunc {
	if what == nil {
		return cobra.NoFileCompletions
	}
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), glanceTime)
		defer cancel()
		t := tab{app: a, ctx: ctx, cmd: cmd, args: args, word: word}
		t.settled = sync.OnceValue(func() bool { return a.load(ctx, cmd.Root().PersistentFlags()) == nil })
		t.look = sync.OnceValue(t.lookAtNode)
		out, directive := what(t)
		if directive == ofKind {
			return out, directive
		}
		out = slices.DeleteFunc(out, func(offer string) bool { return !strings.HasPrefix(offer, word) })
		if len(out) > 0 && !slices.ContainsFunc(out, ends) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return out, directive
	}
}

// ends says that an offer is a whole word.
func ends(offer string) bool {
	word, _, _ := strings.Cut(offer, "\t")
	return !strings.HasSuffix(word, "=") && !strings.HasSuffix(word, ":")
}

// sight is what completion knows of the node.
type sight struct {
	named string // the kubelet's root directory, as it is called
	root  string // and as it is
	seen  []node.Seen
}

// lookAtNode gives what is known of the node when the time is up.
func (t tab) lookAtNode() (last sight) {
	if !t.settled() {
		return last // nor would the command work
	}
	got := make(chan sight)
	go func() {
		defer close(got)
		t.glance(func(s sight) {
			select {
			case got <- s:
			case <-t.ctx.Done():
			}
		})
	}()
	for {
		select {
		case s, ok := <-got:
			if !ok {
				return last
			}
			last = s
		case <-t.ctx.Done():
			return last
		}
	}
}

// glance looks at the node as a command that only reads would see it. It goes nowhere
// for that: of a kubelet elsewhere it takes the mount table.
func (t tab) glance(found func(sight)) {
	a := t.app
	until, _ := t.ctx.Deadline()
	a.deadline, a.probeTimeout = until.Add(grace), min(a.probeTimeout, glanceTime/3)
	pid, root, err := a.view()
	if err != nil {
		return
	}
	o := a.hostOptions()
	o.OwnDirs = map[string]host.OwnDir{a.runDir: {Err: errors.ErrUnsupported}} // nothing is remembered for this
	table := filepath.Join(a.procRoot, "self/mountinfo")
	h := &host.Host{Options: o}
	if pid == 0 {
		h, err = host.New(o)
	}
	if pid != 0 || err != nil { // it does not answer, or is not to be seen from here
		if h = (&host.Host{Options: o}); pid != 0 {
			table = filepath.Join(a.procRoot, strconv.Itoa(pid), "mountinfo")
		}
		if h.Layout, err = paths.New(filepath.Clean(root)); err != nil {
			return
		}
	} else {
		defer h.Close()
	}
	node.Glance(t.ctx, h, table, strings.Join(t.given("pod-uid"), ""), func(seen []node.Seen) { found(sight{filepath.Clean(root), h.Layout.Root, seen}) })
}

// view says where the kubelet's root directory is, and by which process it is seen; 0
// is this one.
func (a *app) view() (pid int, root string, err error) {
	s, err := a.survey()
	if err != nil {
		return 0, "", err
	}
	defer s.close()
	owner, err := s.owner()
	if err != nil {
		return 0, "", err
	}
	if owner != nil {
		a.adopt(owner.Process)
		if a.mountNamespace == 0 && !s.here(owner) {
			return owner.PID, owner.RootDir, nil
		}
	}
	return a.mountNamespace, a.rootDir, nil
}
