package paths

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestKubernetesPluginsAreAll(t *testing.T) {
	raw, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Plugin += "(.*)"`).FindAllStringSubmatch(string(raw), -1)
	for _, m := range all {
		if !slices.Contains(KubernetesPlugins, m[1]) {
			t.Errorf("%s is not among them", m[1])
		}
	}
	if len(all) != len(KubernetesPlugins) {
		t.Errorf("%d names, and %d are listed", len(all), len(KubernetesPlugins))
	}
}
