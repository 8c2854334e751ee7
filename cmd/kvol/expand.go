package main

import (
	"errors"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
)

const expandLong = `Grows a volume on this node once its storage has grown: the file system of a device
to the size of the device (ext3 and ext4, xfs, btrfs, while it is mounted), or what
the volume's CSI driver does for NodeExpandVolume. The result says how many bytes it
had and has. A file system that fills its device is left alone.`

const expandExample = `  # the disk of this PV was made larger
  kvol expand -f pv.yaml
  # of what is mounted only the name is known
  kvol expand data
  # what is to be there at least
  kvol expand -f pv.yaml --size 20Gi`

func newExpandCmd(a *app) *cobra.Command {
	cmd, o := a.downCmd(ops.Expand)
	cmd.Use, cmd.Short = "expand [VOLUME]", "Grow a volume on this node to the size of its storage"
	cmd.Long, cmd.Example = expandLong+cmd.Long, expandExample
	o.addPodFlag(cmd.Flags())
	cmd.Flags().Var(&o.size, "size", "`SIZE` that the volume is to have at least, as in a claim: 20Gi; a device that is smaller is refused")
	return cmd
}

// sizeFlag is a size as Kubernetes writes it.
type sizeFlag struct {
	text  string
	bytes int64
}

func (s *sizeFlag) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return errors.New("it is no size as a claim has it: 20Gi")
	}
	s.text, s.bytes = text, q.Value()
	return nil
}

func (s *sizeFlag) String() string { return s.text }
func (s *sizeFlag) Type() string   { return "string" }
