package csi

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

// Files as a kubelet writes them (the first three are of a real node), and as a crash,
// an old kubelet or somebody leaves them.
var files = map[string]struct {
	text  string
	state state
	want  volume
}{
	"of a pod": {`{"attachmentID":"csi-06688c","driverName":"hostpath.csi.k8s.io","nodeName":"node1","specVolID":"pvc-3375","volumeHandle":"47f49f0b","volumeLifecycleMode":"Persistent"}` + "\n",
		whole, volume{"hostpath.csi.k8s.io", "47f49f0b"}},
	"staged":          {`{"driverName":"loopfs.test","volumeHandle":"/var/lib/loopvols/v1.img"}` + "\n", whole, volume{"loopfs.test", "/var/lib/loopvols/v1.img"}},
	"a driver with ^": {`{"driverName":"d^e","volumeHandle":"h"}`, broken, volume{}},
	"a handle with ^": {`{"driverName":"d.test","volumeHandle":"a^b"}`, whole, volume{"d.test", "a^b"}},
	"further keys":    {`{"driverName":"d.test","volumeHandle":"h","new":"a","nodeName":null}`, whole, volume{"d.test", "h"}},
	"no texts":        {`{"driverName":"d.test","volumeHandle":"h","new":{"a":[1]}}`, broken, volume{}}, // nor for a kubelet
	"empty":           {"", broken, volume{}},
	"zeroes":          {strings.Repeat("\x00", 4096), broken, volume{}},
	"cut short":       {`{"driverName":"d.test","volumeHan`, broken, volume{}},
	"without its end": {`{"driverName":"d.test","volumeHandle":"h"`, broken, volume{}},
	"two of them":     {`{"driverName":"d.test","volumeHandle":"h"}{"driverName":"e.test"}`, whole, volume{"d.test", "h"}},
	"a list":          {`["d.test"]`, broken, volume{}},
	"null":            {`null`, broken, volume{}},
	"no handle":       {`{"driverName":"d.test"}`, broken, volume{}},
	"empty handle":    {`{"driverName":"d.test","volumeHandle":""}`, broken, volume{}},
	"no driver":       {`{"volumeHandle":"h"}`, broken, volume{}},
	"wrong types":     {`{"driverName":["d.test"],"volumeHandle":7}`, broken, volume{}},
	"a way out":       {`{"driverName":"../../etc","volumeHandle":"h"}`, broken, volume{}},
}

func TestParse(t *testing.T) {
	for name, f := range files {
		if got := parse([]byte(f.text)); got.state != f.state || got.volume != f.want {
			t.Errorf("%s: %s %+v (%s)", name, got.state, got.volume, got.why)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range files {
		f.Add([]byte(file.text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := parse(raw)
		switch d.state {
		case whole:
			if v, ok := volumeOf(d.String()); !ok || v != d.volume {
				t.Errorf("%q is read as %q, which is no name of a volume", raw, d)
			}
		case broken:
			if d.why == "" || strings.ContainsFunc(d.why, unicode.IsControl) {
				t.Errorf("%q is broken because %q", raw, d.why)
			}
		default:
			t.Errorf("%q is %s", raw, d.state)
		}
	})
}

// What kvol writes is what a kubelet writes, key by key.
func TestOwnData(t *testing.T) {
	p := &plugin{host: &host.Host{Options: host.Options{NodeName: "node1"}}}
	got, err := json.Marshal(p.ownData(volume{"hostpath.csi.k8s.io", "47f49f0b-e5a3-11f1-9166-827482195b05"}, "pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f", voldata.Persistent))
	// testdata/real-node/vol_data.txt
	const want = `{"attachmentID":"csi-06688c6033cb4891b0db4d6c1d9f406e3309eac37256427cb2585e99f03c910c","driverName":"hostpath.csi.k8s.io","nodeName":"node1",` +
		`"specVolID":"pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f","volumeHandle":"47f49f0b-e5a3-11f1-9166-827482195b05","volumeLifecycleMode":"Persistent"}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if d := parse(got); d.state != whole || d.lifecycle != voldata.Persistent {
		t.Errorf("it is read back as %+v", d)
	}
	if _, has := p.ownData(volume{"d", "h"}, "raw", "")[voldata.Lifecycle]; has {
		t.Error("a raw block volume's data has a lifecycle mode")
	}
}
