package devices

import (
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

func TestSameFile(t *testing.T) {
	testutil.Root(t)
	d, ctx := machine(t)
	one, img := testutil.LoopImage(t, 1<<20)
	other, _ := testutil.LoopImage(t, 1<<20)
	two := testutil.Loop(t, img)
	for dev, want := range map[string]string{one: two, two: one, other: ""} {
		o, err := d.Open(ctx, dev)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		same, err := d.SameFile(ctx, o.Device)
		if err != nil || len(same) > 1 || len(same) == 1 && same[0].Path != want || len(same) == 0 && want != "" {
			t.Errorf("%s: %v, %v; want %q", dev, same, err, want)
		}
	}
}
