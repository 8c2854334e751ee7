package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node/alive"
)

// TestListOwners: whose a volume is, as the operator's list tells it.
func TestListOwners(t *testing.T) {
	s := newScratch(t)
	s.tmpfs(volumesA + "kubernetes.io~nfs/data")
	s.tmpfs(volumesB + "kubernetes.io~nfs/data")
	s.tmpfs(globals + "data")
	list := s.dir + "/pods.json"
	s.must(os.WriteFile(list, []byte(`{"kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"`+podA+`"}}`), 0o600))
	type owner struct {
		Pod, Namespace string
		Owner          api.Owner
	}
	web, nobody := owner{"web", "shop", api.OwnerLive}, owner{"", "", api.OwnerUnknown}
	now := time.Now()
	for name, c := range map[string]struct {
		o       ListOptions
		written time.Time
		want    map[string]owner
		warning string
	}{
		"a list younger than the pods": {ListOptions{Probe: true}, now, map[string]owner{"a": web, "b": {"", "", api.OwnerGone}, "global": nobody}, ""},
		"a list older than the pods":   {ListOptions{Probe: true}, time.Unix(1, 0), map[string]owner{"a": web, "b": nobody, "global": nobody}, ""},
		"not asked":                    {ListOptions{}, now, map[string]owner{"a": nobody, "b": nobody, "global": nobody}, ""},
		"of a namespace":               {ListOptions{Probe: true, Namespace: []string{"shop"}}, now, map[string]owner{"a": web}, "1 entry is left out because no source names the pod"},
		"of another":                   {ListOptions{Probe: true, Namespace: []string{"other"}}, now, map[string]owner{}, "1 entry is left out because no source names the pod"},
	} {
		s.must(os.Chtimes(list, c.written, c.written))
		c.o.Pods = alive.Options{From: []string{"file:" + list}}
		l, err := List(t.Context(), s.host(), c.o)
		s.must(err)
		got := map[string]owner{}
		for _, m := range l.Items {
			key := map[string]string{podA: "a", podB: "b"}[m.PodUID]
			if key == "" {
				key = "global"
			}
			got[key] = owner{m.PodName, m.Namespace, m.Owner}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || strings.Join(l.Warnings, "") != c.warning {
			t.Errorf("%s: %v %s", name, l.Warnings, diff)
		}
	}
	_, err := List(t.Context(), s.host(), ListOptions{Probe: true, Pods: alive.Options{From: []string{"file:" + list + "x"}}})
	if api.ExitCode(err) != api.ExitUsage {
		t.Errorf("a list that is not there: %v", err)
	}
}
