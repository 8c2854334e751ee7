package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const pathsLong = `With -f it tells where the mount points of a volume are, or would be, on this node,
and its metadata beside them. With paths as arguments it tells what each of them is:
which kind of path the kubelet makes there, of which plugin, volume, pod and
container, from its name alone: it need not exist. Nothing is changed.`

const pathsExample = `  # where would this volume be for this pod?
  kvol paths -f pv.yaml -f pod.yaml
  # what is this?
  kvol paths /var/lib/kubelet/pods/0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2/volumes/kubernetes.io~nfs/data`

type pathsOptions struct {
	volumeOptions
	paths []string
}

func newPathsCmd(a *app) *cobra.Command {
	o := &pathsOptions{}
	cmd := &cobra.Command{
		Use:     "paths -f FILE | PATH...",
		Short:   "Tell where a volume's mount points are, or what a path is",
		Long:    pathsLong + exitCodes(append(readCodes, api.ExitNotSupported)...),
		Example: pathsExample,
		GroupID: inspecting,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) == (len(o.files) > 0) {
				return api.Errorf(api.ErrUsage, "kvol paths takes either paths or documents with -f")
			}
			if len(args) > 0 && (o.volume != "" || o.plugin != "" || o.podUID != "") {
				return api.Errorf(api.ErrUsage, "--volume, --plugin and --pod-uid go with -f, not with a path")
			}
			o.paths = args
			return a.do(cmd, readLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *pathsOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	o.addPodFlag(f)
	o.addPluginFlag(f)
}

func (o *pathsOptions) run(ctx context.Context, a *app) error {
	if len(o.paths) > 0 {
		return showList(a, render.PathInfos(), onNode(a, func(m *machine) (*api.List[api.PathInfo], error) { return o.explain(a, m) }))
	}
	return showDocument(a, render.Paths(), func() (*api.PathSet, error) {
		req, err := o.request(ctx, a)
		if err != nil {
			return nil, err
		}
		return onNode(a, func(m *machine) (*api.PathSet, error) {
			return node.PathsOf(ctx, m.host, m.mgr, req.Spec, req.Plugin, req.Pod)
		})()
	})
}

func (o *pathsOptions) explain(a *app, m *machine) (*api.List[api.PathInfo], error) {
	var items []api.PathInfo
	for _, path := range o.paths {
		abs, err := a.abs(path)
		if err != nil {
			return nil, err
		}
		info, err := node.Explain(m.host, abs)
		if err != nil {
			return nil, err
		}
		items = append(items, info)
	}
	return api.NewList("PathInfoList", items, nil), nil
}
