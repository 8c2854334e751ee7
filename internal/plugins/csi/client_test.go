package csi

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/api"
)

// Which codes are final is the kubelet's own list (isFinalError in
// pkg/volume/csi/csi_client.go); all that is not may have happened.
func TestCodes(t *testing.T) {
	kinds := map[codes.Code]error{
		codes.Canceled: api.ErrUncertain, codes.DeadlineExceeded: api.ErrUncertain, codes.Unavailable: api.ErrUncertain,
		codes.ResourceExhausted: api.ErrUncertain, codes.Aborted: api.ErrUncertain,
		codes.NotFound: api.ErrNotFound, codes.Unimplemented: api.ErrNotSupported,
	}
	d := &driver{name: "d.test", socket: "/d.sock", link: &link{who: "CSI driver d.test", socket: "/d.sock"}}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		err := d.fault(t.Context(), "NodeStageVolume", &said{code, "no"})
		want, special := kinds[code]
		if special && !errors.Is(err, want) || !special && api.ExitCode(err) != api.ExitFailed {
			t.Errorf("%s: exit code %d, %v", code, api.ExitCode(err), err)
		}
		if is := ended(err); is == errors.Is(err, api.ErrUncertain) {
			t.Errorf("%s: it has ended: %t, and the error is %v", code, is, err)
		}
		if status.Code(err) != code || unknown(err) != (code == codes.NotFound) {
			t.Errorf("%s is lost in %v", code, err)
		}
		for _, word := range []string{"d.test", "NodeStageVolume", code.String(), "no"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", code, err, word)
			}
		}
	}
}

// A question that has no answer changed nothing, and says who did not give it.
func TestUnanswered(t *testing.T) {
	l := &link{who: "CSI driver d.test", socket: "/d.sock"}
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	nobody := api.Errorf(api.ErrMissingTool, "nobody listens").At("/d.sock")
	for name, c := range map[string]struct {
		ctx    context.Context
		failed error
		code   codes.Code
		want   error
	}{
		"no answer":      {t.Context(), nil, codes.DeadlineExceeded, api.ErrTimeout},
		"out of time":    {late, nil, codes.Unavailable, api.ErrTimeout},
		"interrupted":    {interrupted, nil, codes.Canceled, context.Canceled},
		"nobody there":   {t.Context(), nobody, codes.Unavailable, api.ErrMissingTool},
		"it broke off":   {t.Context(), nil, codes.Unavailable, api.ErrUncertain},
		"it has no such": {t.Context(), nil, codes.Unimplemented, nil},
	} {
		l.failed = c.failed
		err := l.unanswered(c.ctx, "NodeGetInfo", status.Error(c.code, "x"))
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && api.ExitCode(err) != api.ExitFailed || !strings.Contains(err.Error(), "d.test") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestTame(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " a\n\tb ": "a b", "red \x1b[31m": "red [31m", "nul\x00": "nul", "bad \xff": "bad ?", "c1 \u009b31m": "c1 31m",
	} {
		if got := tame(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := tame(strings.Repeat("ä", maxText)); len(got) > maxText+10 || strings.Contains(got, "\ufffd") {
		t.Errorf("%d bytes: …%q", len(got), got[len(got)-10:])
	}
}
