package paths

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// hostile is refused by every validator.
var hostile = []string{
	"", ".", "..", "/", "a/b", "../a", "a/..", "a\x00", "\x00", "a\nb", "a\n", "a\tb", "a\rb", "\x1b[2J", "-a", "--", "a\x7f", "a\u0085b", "a\u202eb",
	"a\u200bb", "\xff", "a\xc3", strings.Repeat("a", 256), strings.Repeat("é", 128),
}

func TestValidators(t *testing.T) {
	for name, c := range map[string]struct {
		valid    func(string) error
		yes, no  []string
		twoParts bool // "a/b" is valid
	}{
		"pod uid": {
			valid: ValidPodUID,
			yes:   []string{uid, "1072a062805fbab9885e59f2499da950", "my.uid_1:2", "0"},
			no:    []string{"a b", "a~b", "a;b", "$(id)", "é"},
		},
		"volume name": {
			valid: ValidVolumeName,
			yes:   []string{"pv1", "pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f", "pv.ns.Name_1", "csi.vsphere.vmware.com-[ds] k~d.vmdk", "..data", "é", strings.Repeat("v", 255)},
		},
		"plugin": {
			valid: ValidPluginName, twoParts: true,
			yes: []string{NFSPlugin, "vendor/driver", "driver", "example.com/my_driver.v1"},
			no:  []string{"a/b/c", "a~b", "a/", "/a", "a//b", "a b/c", "../a", "a/..", ".a", "a/-b", strings.Repeat("a", 200) + "/" + strings.Repeat("b", 100)},
		},
		"container name": {valid: ValidContainerName, yes: []string{"c", "main-1", strings.Repeat("c", 63)}, no: []string{"C", "a.b", "a_b", "a-", strings.Repeat("c", 64)}},
		"driver name":    {valid: ValidDriverName, yes: []string{"ebs.csi.aws.com", "a_b", "D"}, no: []string{".a", "a.", "a b", strings.Repeat("d", 64)}},
		"hash":           {valid: ValidHandleHash, yes: []string{hash}, no: []string{hash[1:], strings.ToUpper(hash), hash + "0", "g" + hash[1:]}},
		"interface":      {valid: ValidIface, yes: []string{"default", "bond0.1", "10.0.0.1:3260:pv-1", "[fd00::1]:3260:pv"}, no: []string{"a b", "[]", "a~b"}},
		"iqn": {
			valid: ValidIQN,
			yes:   []string{"iqn.2001-04.com.example:storage.disk1", "iqn.2001-04.com.example", "iqn.1993-08.org.debian:01:ab-c_d", "eui.02004567A425678D", "naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF"},
			no:    []string{"iqn", "iqn.", "iqn.2001-04", "iqn.2001-04.", "iqn.2001.04.com", "iqn.200-104.com", "eui.02004567", "naa.xyz", "x.2001-04.com", "iqn.2001-04.com.example:a b", "iqn.2001-04.com.example:a;b", "iqn.2001-04..", "iqn.2001-04.a" + strings.Repeat("b", 220)},
		},
		"portal": {
			valid: ValidPortal,
			yes:   []string{"10.0.0.1", "10.0.0.1:3260", "my-host.example.com:3260", "[fd00::1]", "[fd00::1]:3260"},
			no:    []string{"fd00::1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:03260", "10.0.0.1:", ":3260", "[10.0.0.1]:1", "[fd00::1", "[fe80::1%eth0]", "a b", "[]"},
		},
		"wwn":   {valid: ValidWWN, yes: []string{"50060e801049cfd1", "50060E801049CFD1", hash[:32]}, no: []string{"0x50060e801049cfd1", "50060e801049cfd", "50060e801049cfdg"}},
		"wwid":  {valid: ValidWWID, yes: []string{"3600508b400105e210000900000490000", "naa.600 a_b"}, no: []string{" a", "a~b", "a;b"}},
		"pool":  {valid: ValidPool, yes: []string{"kube", ".rbd", "a-image-b"}, no: []string{"a b", "a@b", "a;b"}},
		"image": {valid: ValidImage, yes: []string{"kubernetes-dynamic-pvc-1", "a_b"}, no: []string{"a b", "a@snap"}},
	} {
		for _, s := range c.yes {
			if err := c.valid(s); err != nil {
				t.Errorf("%s %q: %v", name, s, err)
			}
		}
		for _, s := range append(c.no, hostile...) {
			if c.twoParts && s == "a/b" {
				continue
			}
			err := c.valid(s)
			e, ok := errors.AsType[*api.Error](err)
			if !ok || !errors.Is(err, api.ErrInput) {
				t.Errorf("%s %q is accepted: %v", name, s, err)
				continue
			}
			if e.Next == "" || strings.ContainsFunc(e.Error(), func(r rune) bool { return r < ' ' }) {
				t.Errorf("%s %q: the message is %q, next %q", name, s, e.Error(), e.Next)
			}
			if !strings.Contains(e.Error(), quote(s)) {
				t.Errorf("%s: %q does not name the input %q", name, e.Error(), s)
			}
		}
	}
	if err := errors.Join(ValidLUN(0), ValidLUN(1<<31-1)); err != nil {
		t.Error(err)
	}
	if ValidLUN(-1) == nil {
		t.Error("LUN -1 is accepted")
	}
}
