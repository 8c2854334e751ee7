package documents

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"

	"github.com/google/go-cmp/cmp"
)

func TestSelectAll(t *testing.T) {
	bound := claimed("name: claim")
	for _, c := range []struct {
		name string
		docs []string
		uids []string
		want []string // pod, name, source, word; "ro"
		left []string // in the warnings
	}{
		{name: "a pod's claim and inline volume", docs: []string{bound, podWith(roClaim + inline)},
			want: []string{"0f5c1a52-0001 data local data ro", "0f5c1a52-0001 tmp emptyDir tmp"}},
		{name: "two pods", docs: []string{bound, podWith(rwClaim), pod2 + rwClaim + inline},
			want: []string{"0f5c1a52-0001 data local data", "0f5c1a52-0002 data local data", "0f5c1a52-0002 tmp emptyDir tmp"}},
		{name: "one of two pods", docs: []string{bound, podWith(rwClaim), pod2 + rwClaim}, uids: []string{"0f5c1a52-0002"},
			want: []string{"0f5c1a52-0002 data local data"}},
		{name: "what no pod has", docs: []string{bound, pvNamed("free"), podWith(rwClaim)},
			want: []string{"0f5c1a52-0001 data local data"}, left: []string{"free"}},
		{name: "one volume under two names", docs: []string{bound, podWith(rwClaim + strings.Replace(rwClaim, "name: rw", "name: r2", 1))},
			want: []string{"0f5c1a52-0001 data local data"}},
		// Nothing selects the inline one alone: choose says so, and what to do.
		{name: "an inline volume of a PersistentVolume's name", docs: []string{bound, podWith(rwClaim + "  - {name: data, emptyDir: {}}\n")},
			want: []string{"0f5c1a52-0001 data local rw", "0f5c1a52-0001 data emptyDir "}},
		{name: "without a pod's document", docs: []string{goodPV, pvNamed("b")}, uids: []string{"u1", "u2"},
			want: []string{"u1 data local data", "u1 b local b", "u2 data local data", "u2 b local b"}},
		{name: "a pod without volumes", docs: []string{podWith("")}, want: nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := read(t, c.docs...)
			items, left, err := d.SelectAll(c.uids)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range items {
				word := i.Pod.UID + " " + i.Spec.Name() + " " + i.Spec.Source() + " " + i.Word
				if i.Spec.ReadOnly {
					word += " ro"
				}
				got = append(got, word)
				if i.Word == "" {
					continue
				}
				// The word selects the same volume again.
				again, err := d.Select(i.Word, i.Pod.UID)
				if err != nil || again.Specs[0].Name() != i.Spec.Name() || again.Specs[0].Source() != i.Spec.Source() {
					t.Errorf("%s is selected by its word %q: %v, %v", i.Spec, i.Word, again, err)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if len(left) != len(c.left) || len(left) > 0 && !strings.Contains(left[0], c.left[0]) {
				t.Errorf("left out are %q", left)
			}
		})
	}
	for name, c := range map[string]struct {
		docs []string
		uids []string
		kind error
	}{
		"no pod":               {docs: []string{goodPV}, kind: api.ErrUsage},
		"no volume":            {docs: []string{freePVC}, uids: []string{"u"}, kind: api.ErrInput},
		"a claim without its":  {docs: []string{podWith(rwClaim)}, kind: api.ErrInput},
		"two kinds of access":  {docs: []string{bound, podWith(rwClaim + roClaim)}, kind: api.ErrInput},
		"a pod not among them": {docs: []string{bound, podWith(rwClaim)}, uids: []string{"u"}, kind: api.ErrUsage},
	} {
		if _, _, err := read(t, c.docs...).SelectAll(c.uids); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
