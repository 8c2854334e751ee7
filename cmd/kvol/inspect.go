package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const inspectLong = `Tells everything about one volume, path or pod: what the path is, the volume's mount
points, the mounts there and how they are, the chain of devices below them and who
holds those, the metadata beside it, and what its plugin can do. The subject is a
volume's name, a path below the root, a device or a pod's UID.`

const inspectExample = `  kvol inspect data
  kvol inspect 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  kvol inspect /var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/data -o json`

type inspectOptions struct{ subject string }

func newInspectCmd(a *app) *cobra.Command {
	o := &inspectOptions{}
	return &cobra.Command{
		Use:     "inspect VOLUME|PATH|POD",
		Short:   "Tell everything about one volume, path or pod",
		Long:    inspectLong + exitCodes(readCodes...),
		Example: inspectExample,
		GroupID: inspecting,
		Args:    atMostOne("VOLUME, PATH or POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return api.Errorf(api.ErrUsage, "kvol inspect needs a VOLUME, PATH or POD").
					WithNext("kvol list-mounts shows what there is")
			}
			o.subject = args[0]
			return a.do(cmd, readLimit, o)
		},
	}
}

func (o *inspectOptions) run(ctx context.Context, a *app) error {
	return showDocument(a, render.Inspection(), onNode(a, func(m *machine) (*api.Inspection, error) {
		return node.Inspect(ctx, m.host, m.mgr, o.subject)
	}))
}
