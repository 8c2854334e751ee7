package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/ops"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// parse gives the options that the words of a command line make.
func parse(t *testing.T, line string) (got runner, a *app, code int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a = newApp(strings.Fields(line), strings.NewReader(""), &out, &errs)
	a.intercept = func(_ context.Context, r runner) error { got = r; return nil }
	code = a.main()
	return got, a, code, errs.String()
}

func TestWordsParse(t *testing.T) {
	for line, want := range map[string]runner{
		"attach -f a.yaml -f - --volume data --check": &verbOptions{verb: ops.Attach,
			volumeOptions: volumeOptions{files: []string{"a.yaml", "-"}, volume: "data"}, check: true},
		"attach --filename a.yaml --dry-run": &verbOptions{verb: ops.Attach, volumeOptions: volumeOptions{files: []string{"a.yaml"}}, dryRun: true},
		"detach data --plugin kubernetes.io/nfs --must-exist": &verbOptions{verb: ops.Detach,
			volumeOptions: volumeOptions{volume: "data", plugin: "kubernetes.io/nfs"}, mustExist: true},
		"detach --volume data":       &verbOptions{verb: ops.Detach, volumeOptions: volumeOptions{volume: "data"}},
		"mount-device -f a --format": &verbOptions{verb: ops.MountDevice, volumeOptions: volumeOptions{files: []string{"a"}}, format: true},
		"unmount-device data --lazy --force-umount --dry-run": &verbOptions{verb: ops.UnmountDevice,
			volumeOptions: volumeOptions{volume: "data"}, lazy: true, forceUmount: true, dryRun: true},
		"publish -f a --pod-uid u": &verbOptions{verb: ops.Publish, volumeOptions: volumeOptions{needsPod: true, files: []string{"a"}, podUID: "u"}},
		"unpublish data --pod-uid u --must-exist": &verbOptions{verb: ops.Unpublish,
			volumeOptions: volumeOptions{needsPod: true, volume: "data", podUID: "u"}, mustExist: true},
		"unpublish -f a,b": &verbOptions{verb: ops.Unpublish, volumeOptions: volumeOptions{needsPod: true, files: []string{"a,b"}}},
		"setup -f a --format --pod-uid u --dry-run": &verbOptions{verb: ops.Setup,
			volumeOptions: volumeOptions{needsPod: true, files: []string{"a"}, podUID: "u"}, format: true, dryRun: true},
		"teardown data --pod-uid u --lazy": &verbOptions{verb: ops.Teardown,
			volumeOptions: volumeOptions{needsPod: true, volume: "data", podUID: "u"}, lazy: true},
		"teardown data --discard-ephemeral --quarantine /q": &verbOptions{verb: ops.Teardown,
			volumeOptions: volumeOptions{needsPod: true, volume: "data"}, discardEphemeral: true, quarantine: "/q"},
		"expand data --size 2Gi --pod-uid u": &verbOptions{verb: ops.Expand,
			volumeOptions: volumeOptions{volume: "data", podUID: "u"}, size: sizeFlag{"2Gi", 2 << 30}},
		"recycle -f a --yes-delete-data": &verbOptions{verb: ops.Recycle, volumeOptions: volumeOptions{files: []string{"a"}}, yesDeleteData: true},
		"delete -f a --dry-run":          &verbOptions{verb: ops.Delete, volumeOptions: volumeOptions{files: []string{"a"}}, dryRun: true},
		"provision -f a --claim c --dry-run": &provisionOptions{
			volumeOptions: volumeOptions{files: []string{"a"}}, claim: "c", dryRun: true},
		"paths /a b":              &pathsOptions{paths: []string{"/a", "b"}},
		"paths -f a --plugin v/p": &pathsOptions{volumeOptions: volumeOptions{files: []string{"a"}, plugin: "v/p"}, paths: []string{}},
		"list-mounts":             &listMountsOptions{interval: 5 * time.Second, filter: node.ListOptions{Probe: true}},
		"ls --kind podVolume,other --no-probe --pod-uid u --plugin v/p --volume v": &listMountsOptions{
			kinds: []string{"podVolume", "other"}, noProbe: true, interval: 5 * time.Second, filter: node.ListOptions{
				Kinds: []api.MountKind{api.KindPodVolume, api.KindOther}, PodUID: "u", Plugin: []string{"v/p"}, Volume: []string{"v"}}},
		"ls --state stale --state ok --owner gone,unknown --orphans --duplicates --pod s/w --namespace s --device 8:1": &listMountsOptions{
			states: []string{"stale", "ok"}, owners: []string{"gone", "unknown"}, interval: 5 * time.Second, filter: node.ListOptions{Probe: true, States: []api.State{api.StateStale, api.StateOK},
				Owners: []api.Owner{api.OwnerGone, api.OwnerUnknown}, Orphans: true, Duplicates: true, Pod: []string{"s/w"}, Namespace: []string{"s"}, Device: []string{"8:1"}}},
		"inspect data": &inspectOptions{subject: "data"},
		"plugins":      &pluginsOptions{},
		"history --volume v --since 2026-03-01T10:00:00Z --limit 3": &historyOptions{
			volume: "v", since: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), limit: 3},
		"history --pod 0a8e9c5e --plugin v/p": &historyOptions{pod: "0a8e9c5e", plugin: "v/p", limit: 50},
		"limits --plugin v/p":                 &limitsOptions{plugin: "v/p"},
		"plugins --plugin v/p":                &pluginsOptions{plugin: "v/p"},
		"wait a /b --for mounted --pod-uid u --plugin v/p": &waitOptions{subjects: []string{"a", "/b"}, condition: "mounted",
			volumeOptions: volumeOptions{podUID: "u", plugin: "v/p"}},
		"config view --show-origin": &configViewOptions{showOrigin: true},
		"version":                   &versionOptions{},
	} {
		t.Run(line, func(t *testing.T) {
			got, _, code, stderr := parse(t, line)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			opts := cmp.Options{
				cmp.AllowUnexported(verbOptions{}, pathsOptions{}, listMountsOptions{}, node.ListOptions{}, inspectOptions{}, waitOptions{}, pluginsOptions{}, limitsOptions{},
					historyOptions{}, configViewOptions{}, volumeOptions{}, provisionOptions{}, sizeFlag{}),
				cmp.FilterValues(func(_, _ *pflag.FlagSet) bool { return true }, cmp.Ignore()),
			}
			if diff := cmp.Diff(want, got, opts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWordsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"bogus":                         `kvol has no command "bogus"`,
		"list-mount":                    "did you mean kvol list-mounts",
		"config bogus":                  `kvol config has no command "bogus"`,
		"help bogus":                    `there is no command "bogus"`,
		"ls extra":                      `takes no argument, but got "extra"`,
		"ls --bogus":                    "unknown flag: --bogus",
		"ls --apply":                    "unknown flag: --apply",
		"ls --kind bogus":               `--kind "bogus" is none of: podVolume, `,
		"ls --state fine":               `--state "fine" is none of: ok, `,
		"ls --namespace a --no-probe":   "--no-probe asks nobody",
		"ls --orphans --no-probe":       "--no-probe asks nobody",
		"ls --pod web --no-probe":       "--no-probe asks nobody",
		"ls --dry-run":                  "unknown flag: --dry-run",
		"ls --pod=":                     "--pod has an empty value",
		"ls --state=":                   "--state has an empty value",
		"history --plugin=":             "--plugin has an empty value",
		"ls --timeout x":                `--timeout "x" is no time: write 500ms, 10s or 2m`,
		"ls --mount-namespace x":        `--mount-namespace "x" is no whole number`,
		"ls --no-headers=x":             `--no-headers "x" has to be true or false`,
		"ls --no-header":                "next: did you mean --no-headers?",
		"setup --discard-ephemeral":     "unknown flag: --discard-ephemeral\nnext: kvol setup --help",
		"ls --timeout 0":                `--timeout "0s" has to be more than 0`,
		"ls --timeout -1s":              `--timeout "-1s" has to be more than 0`,
		"ls --probe-timeout 0":          `--probe-timeout "0s" has to be more than 0`,
		"ls --lock-timeout -1s":         `--lock-timeout "-1s" cannot be negative`,
		"ls --color red":                `--color "red" is none of: auto, always, never`,
		"ls --log-level loud":           `--log-level "loud" is none of: debug, info, warn, error`,
		"attach":                        "no volume is given",
		"attach -f a --check --dry-run": "--check changes nothing",
		"setup -f a data":               `takes no argument, but got "data"`,
		"teardown":                      "no volume is named",
		"teardown a b":                  "takes one VOLUME, but got 2",
		"teardown a --volume b":         `the argument names "a" and --volume names "b"`,
		"paths":                         "takes either paths or documents",
		"paths /a -f b":                 "takes either paths or documents",
		"paths /a --pod-uid u":          "go with -f, not with a path",
		"inspect":                       "needs a VOLUME, PATH or POD",
		"inspect a b":                   "takes one VOLUME, PATH or POD, but got 2",
		"history --since yesterday":     `--since "yesterday" is neither`,
		"history --pod web":             `--pod "web" is no UID, nor the first 8 characters of one, and the history has no names of pods`,
		"history --limit -1":            "--limit -1 is negative",
		"ls --config /nonexistent":      "/nonexistent: the configuration file cannot be read: no such file or directory\nnext: name the one that is meant: --config FILE",
	} {
		t.Run(line, func(t *testing.T) {
			got, _, code, stderr := parse(t, line)
			if got != nil && !strings.Contains(line, "--") {
				t.Errorf("the command would have run: %+v", got)
			}
			if code != api.ExitUsage || !strings.HasPrefix(stderr, "kvol: ") || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nnext: ") {
				t.Errorf("exit code %d, standard error:\n%s", code, stderr)
			}
		})
	}
}
