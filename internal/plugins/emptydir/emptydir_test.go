package emptydir_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/emptydir"
	"github.com/kvol/kvol/internal/plugins/plugintest"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

func TestConformance(t *testing.T) {
	skip := map[string]string{}
	examples := []plugintest.Example{
		{Name: "disk", Spec: of("", ""), Plain: true, Ephemeral: true},
		{Name: "memory", Spec: of(v1.StorageMediumMemory, "8Mi"), Ephemeral: true},
		{Name: "hugepages", Spec: of("HugePages-2Mi", ""), Ephemeral: true},
	}
	for _, ex := range examples {
		for check, reason := range map[string]string{
			"ReadOnly":              "an emptyDir is its pod's to write; read-only is a container's volumeMount",
			"ReadOnlyBeside":        "no two pods have one emptyDir",
			"FSGroupReadOnly":       "it is never read-only",
			"FSGroup":               "once the volume is ready its owners are the pod's, as with a kubelet: TestEmptyDirFSGroup in test/e2e",
			"FSGroupOnRootMismatch": "once the volume is ready its owners are the pod's, as with a kubelet: TestEmptyDirFSGroup in test/e2e",
		} {
			skip[check+"/"+ex.Name] = reason
		}
	}
	for _, name := range []string{"disk", "memory"} {
		skip["FSGroupOtherPod/"+name] = "no two pods have one emptyDir"
	}
	plugintest.Run(t, plugintest.Case{New: emptydir.New, All: all.All, Examples: examples, Skip: skip})
}

// of makes the spec of an emptyDir.
func of(medium v1.StorageMedium, limit string) func(testing.TB, string, string) *plugins.Spec {
	return func(_ testing.TB, _, name string) *plugins.Spec {
		src := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit != "" {
			q := resource.MustParse(limit)
			src.SizeLimit = &q
		}
		return plugins.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: src}})
	}
}
