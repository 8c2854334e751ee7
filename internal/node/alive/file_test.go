package alive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

const (
	podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"` + dashed + `"}}`
	crictl  = `{"items": [{"id": "4e8c", "metadata": {"name": "web", "uid": "` + dashed + `", "namespace": "shop", "attempt": 0},
 "state": "SANDBOX_NOTREADY", "createdAt": "1763726400000000000", "labels": {"io.kubernetes.pod.uid": "` + dashed + `"}, "annotations": {}, "runtimeHandler": ""}]}`
)

func TestFile(t *testing.T) {
	s := newScratch(t)
	for name, text := range map[string]string{
		"a Pod":            podJSON,
		"a List":           `{"kind": "List", "items": [` + podJSON + `]}`,
		"a PodList":        `{"kind": "PodList", "items": [` + strings.Replace(podJSON, `"kind":"Pod",`, "", 1) + `]}`,
		"two documents":    podJSON + "\n" + podJSON,
		"YAML":             "# kubectl\napiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: " + dashed + "}\n",
		"YAML documents":   "---\n---\nkind: Pod\nmetadata: {name: web, uid: " + dashed + "}\n---\n",
		"YAML list":        "items:\n- kind: Pod\n  metadata:\n    name: web\n    uid: " + dashed + "\nkind: List\n",
		"crictl":           crictl,
		"crictl YAML":      "items:\n- metadata: {uid: " + dashed + ", name: web}\n  state: SANDBOX_READY\n",
		"uids":             "\n# all of them\n" + dashed + "\n" + static + "\n",
		"uids of DOS":      "\xef\xbb\xbf" + dashed + "\r\n",
		"a mirror pod":     strings.Replace(strings.Replace(podJSON, dashed, other, 1), `"name"`, `"annotations":{"kubernetes.io/config.hash":"`+dashed+`"},"name"`, 1),
		"a mirror, mirror": strings.Replace(strings.Replace(podJSON, dashed, other, 1), `"name"`, `"annotations":{"kubernetes.io/config.mirror":"`+dashed+`"},"name"`, 1),
	} {
		path := s.write("/etc/pods", text)
		sets := s.look(Options{From: []string{"file:" + path}})
		born := time.Now().Add(-time.Hour)
		if err := sets.Proof(); err != nil {
			t.Errorf("%s: a list is no proof: %v", name, err)
		}
		if v, e := sets.Verdict(dashed, born); v != api.VerdictLive {
			t.Errorf("%s: %s is %s: %v", name, dashed, v, e)
		}
		gone := "11111111-1111-4111-8111-111111111111"
		if v, e := sets.Verdict(gone, born); v != api.VerdictOrphan {
			t.Errorf("%s: what is not in the list is %s: %v", name, v, e)
		}
		for what, born := range map[string]time.Time{"younger": time.Now().Add(time.Hour), "of unknown age": {}} {
			if v, e := sets.Verdict(gone, born); v != api.VerdictUnknown {
				t.Errorf("%s: what is %s is %s: %v", name, what, v, e)
			}
		}
		if r := reportOf(t, sets, SourceAPI); strings.Contains(r.Reason, "not asked") {
			t.Errorf("with a list alone the others are not asked: %+v", r)
		}
	}
}

func TestFileRefused(t *testing.T) {
	s := newScratch(t)
	for name, c := range map[string]struct {
		text string
		kind error
		want string // in what is said
	}{
		"empty":               {"", api.ErrRefused, "names no pod"},
		"comments":            {"# none\n", api.ErrRefused, "names no pod"},
		"empty List":          {`{"kind":"List","items":[]}`, api.ErrRefused, "names no pod"},
		"empty PodList":       {"kind: PodList\nitems: null\n", api.ErrRefused, "names no pod"},
		"empty crictl":        {`{"items": []}`, api.ErrRefused, "names no pod"},
		"another node's":      {strings.Replace(podJSON, "}}", `},"spec":{"nodeName":"node2"}}`, 1), api.ErrRefused, "names 1 pod, none of the node node1"},
		"breaks off":          {"{\"kind\":\"List\",\n\"items\":[" + podJSON, api.ErrInput, "line 2: it breaks off"},
		"broken":              {"{\n\n\"kind\" \"List\"}", api.ErrInput, "line 3: invalid character"},
		"rubbish behind":      {podJSON + "\n\n%", api.ErrInput, "line 3: invalid character"},
		"a Service":           {"\n{\"kind\":\"Service\"}", api.ErrInput, `line 2: it is a "Service"`},
		"a list of Services":  {"{\"kind\":\"ServiceList\",\n\"items\":[]}", api.ErrInput, `line 1: it is a "ServiceList"`},
		"a Service in a List": {"{\"kind\":\"List\",\"items\":[\n" + podJSON + ",\n\n{\"kind\":\"Service\"}]}", api.ErrInput, "line 4: item 1: it is a Service"},
		"without uid":         {"{\"kind\":\"PodList\",\"items\":[\n" + podJSON + ",\n{\"metadata\":{\"name\":\"x\"}}]}", api.ErrInput, `line 3: item 1: the pod "x" has no metadata.uid`},
		"sandbox without uid": {"{\"items\":[\n{\"id\":\"x\"}]}", api.ErrInput, "line 2: item 0: the sandbox has no uid"},
		"crictl ps":           {`{"containers":[]}`, api.ErrInput, "not a Pod, List or PodList"},
		"YAML":                {"kind: Pod\nmetadata:\n\tname: x\n", api.ErrInput, "line 3"},
		"YAML wrong kind":     {"# x\nkind: Service\n", api.ErrInput, `line 2: it is a "Service"`},
		"YAML item":           {"kind: List\nitems:\n- kind: Pod\n  metadata: {uid: x}\n- kind: Pod\n", api.ErrInput, "line 5: item 1"},
		"wrong type":          {"kind: Pod\nmetadata: 1\n", api.ErrInput, "line 1: json: cannot unmarshal number"},
		"an odd key":          {"kind: Pod\n1: {2: 3}\n", api.ErrInput, "line 1:"},
		"names":               {"web\nshop\n", api.ErrInput, `line 1: "web" is no pod uid`},
		"sandbox ids":         {dashed + "\n" + strings.Repeat("ab", 32) + "\n", api.ErrInput, `line 2: "abab`},
		"a word among them":   {dashed + "\n\nweb\n", api.ErrInput, `line 3: "web" is no pod uid`},
	} {
		path := s.write("/etc/pods", c.text)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := Look(ctx, s.h, Options{From: []string{"file:" + path}})
		if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.want) || !strings.HasPrefix(fmt.Sprint(err), path+": ") {
			t.Errorf("%s: %v", name, err)
		}
		_, err = Look(ctx, s.h, Options{From: []string{"file:" + path}, AssertNoPods: true})
		if (err == nil) != errors.Is(c.kind, api.ErrRefused) {
			t.Errorf("%s with --assert-no-pods: %v", name, err)
		}
		cancel()
	}
}

// TestFileIsAFile: nothing waits for a fifo or a dead server.
func TestFileIsAFile(t *testing.T) {
	s := newScratch(t)
	l, err := net.Listen("unix", "/run/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	hung := testutil.FUSE(t, s.mkdir("/run/hung"), testutil.FUSEHung)
	for path, want := range map[string]error{
		"/run/socket": api.ErrInput, "/run": api.ErrInput, "/run/none": api.ErrInput, "/dev/zero": api.ErrInput,
		hung.Path + "/pods": api.ErrTimeout,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := Look(ctx, s.h, Options{From: []string{"file:" + path}, Timeout: time.Second}); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
		cancel()
	}
}

func TestWordsOfPodsFrom(t *testing.T) {
	s := newScratch(t)
	s.write("/etc/pods", dashed)
	for _, from := range [][]string{{"kubelets"}, {"file:"}, {"auto", ""}, {"cgroup"}} {
		if _, err := Look(t.Context(), s.h, Options{From: from}); !errors.Is(err, api.ErrUsage) {
			t.Errorf("%q: %v", from, err)
		}
	}
	for _, c := range []struct {
		from []string
		want string // the sources that are asked
	}{
		{nil, "kubelet runningpods cri api static cgroup process"},
		{[]string{"auto"}, "kubelet runningpods cri api static cgroup process"},
		{[]string{"cri", "auto"}, "kubelet runningpods cri api static cgroup process"},
		{[]string{"cri", "api"}, "cri api cgroup process"},
		{[]string{"kubelet"}, "kubelet runningpods cgroup process"},
		{[]string{"file:/etc/pods"}, "file kubelet runningpods cri api static cgroup process"},
		{[]string{"file:/etc/pods", "static"}, "file static cgroup process"},
	} {
		var asked []string
		for _, r := range s.look(Options{From: c.from, KubeletEndpoint: "127.0.0.1:1"}).Reports() {
			if !strings.Contains(r.Reason, "not asked") {
				asked = append(asked, r.Source)
			}
		}
		if got := strings.Join(asked, " "); got != c.want {
			t.Errorf("%q asks %s, want %s", c.from, got, c.want)
		}
	}
	t.Chdir("/etc")
	if r := s.report(Options{From: []string{"file:pods"}}, SourceFile); len(r.Pods) != 1 {
		t.Errorf("a relative path: %+v", r)
	}
}
