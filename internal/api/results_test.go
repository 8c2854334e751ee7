package api_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// A list of nothing is a list: scripts range over it.
func TestEmptyList(t *testing.T) {
	for name, c := range map[string]struct {
		list any
		want string
	}{
		"empty": {api.NewList[api.Mount]("MountList", nil, nil), `{"apiVersion":"kvol/v1","kind":"MountList","items":[],"warnings":[]}`},
		"full":  {api.NewList("L", []int{1}, []string{"w"}), `{"apiVersion":"kvol/v1","kind":"L","items":[1],"warnings":["w"]}`},
		"plan": {api.Plan{List: api.NewList[api.Step]("StepList", nil, nil), Facts: []string{"test -d /a"}, NoShell: "format"},
			`{"apiVersion":"kvol/v1","kind":"StepList","items":[],"warnings":[]}`},
		"the error document": {api.NewErrorDoc(api.ErrBusy),
			`{"apiVersion":"kvol/v1","kind":"Error","code":9,"reason":"Busy","message":"busy","op":"","plugin":"","volume":"","path":"","next":"","details":[]}`},
	} {
		if got := toJSON(t, c.list); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// What may have happened is never told as failed, whatever ended it.
func TestOutcomeOf(t *testing.T) {
	for err, want := range map[error]api.Outcome{
		nil:                      api.OutcomeDone,
		api.ErrBusy:              api.OutcomeRefused,
		api.ErrNotEmpty:          api.OutcomeRefused,
		api.ErrTimeout:           api.OutcomeUncertain,
		context.DeadlineExceeded: api.OutcomeUncertain,
		errors.Join(api.ErrBusy, api.ErrUncertain):  api.OutcomeUncertain,
		errors.Join(api.ErrRefused, errors.New("")): api.OutcomeRefused,
		errors.New("of no kind"):                    api.OutcomeFailed,
		api.ErrNotFound:                             api.OutcomeFailed,
	} {
		if got := api.OutcomeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
