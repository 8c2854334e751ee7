package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const attachLong = `Attaches the volume to this node and waits until its device is there, as the
kubelet's attach and WaitForAttach do. A volume that needs no attach (a local
volume, most network shares) is skipped with the reason. With --check it changes
nothing and only tells whether the volume is attached.`

const attachExample = `  # what would be done
  kvol attach -f pv.yaml --dry-run
  # is it attached? 0 yes, 5 no, 8 unknown
  kvol attach -f pv.yaml --check`

type attachOptions struct {
	volumeOptions
	dryRun bool
	check  bool
}

func newAttachCmd(a *app) *cobra.Command {
	o := &attachOptions{}
	cmd := &cobra.Command{
		Use:     "attach -f FILE",
		Short:   "Attach a volume to this node",
		Long:    attachLong + exitCodes(verbCodes...),
		Example: attachExample,
		GroupID: lifecycle,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.needsFiles(); err != nil {
				return err
			}
			if o.check && o.dryRun {
				return api.Errorf(api.ErrUsage, "--check changes nothing by itself: leave --dry-run away")
			}
			return a.do(cmd, slowLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *attachOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	f.BoolVar(&o.check, "check", false, "change nothing; tell whether it is attached: 0 yes, 5 no, 8 unknown")
}

func (o *attachOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	if o.check {
		return a.checkAttached(ctx, req)
	}
	return a.verb(ctx, ops.Attach, req, o.dryRun)
}

// checkAttached asks what is attached and changes nothing.
func (a *app) checkAttached(ctx context.Context, req ops.Request) error {
	o, err := a.options(render.Results())
	if err != nil {
		return err
	}
	h, mgr, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := ops.New(h, mgr).CheckAttached(ctx, req)
	return a.results(l, err, o)
}
