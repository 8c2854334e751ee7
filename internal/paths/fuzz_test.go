package paths

import (
	"strings"
	"testing"
)

// FuzzParse: what is read stays below the root, says where it is, and builds
// the same path again or is refused.
func FuzzParse(f *testing.F) {
	l := layout1(f)
	for _, c := range everyPath {
		f.Add(root + "/" + c.path)
		f.Add(root + "/" + c.path + "/../../x/rest")
	}
	for _, s := range []string{root, "", "/", root + "x/pods", root + "/pods/\x00", root + "/pods/a\n/volumes/~/v"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p := l.Parse(path)
		if p.Kind == None {
			if p != (Path{Kind: None}) {
				t.Fatalf("none says more: %+v", p)
			}
			return
		}
		if !inside(l, path) {
			t.Fatalf("%q is outside the root and is %+v", path, p)
		}
		for _, part := range []string{p.Volume, p.PodUID, p.Container, p.Driver, p.HandleHash, p.Iface, p.File} {
			if strings.Contains(part, "/") || part == ".." || part == "." {
				t.Fatalf("%q has the part %q in %+v", path, part, p)
			}
		}
		for _, rel := range []string{p.Rest, p.ID} {
			if rel != "" && !inside(l, root+"/"+rel) {
				t.Fatalf("%q has %q, which leaves", path, rel)
			}
		}
		if built, err := l.Build(p); err == nil && built != path {
			t.Fatalf("%q reads as %+v, which builds %q", path, p, built)
		}
	})
}

// FuzzBuild: for every kind and any names, what is built is below the root and
// reads back as what it was built from.
func FuzzBuild(f *testing.F) {
	l := layout1(f)
	for _, c := range everyPath {
		p := c.want
		f.Add(string(p.Kind), p.Plugin, p.Volume, p.ID, p.PodUID, p.Container, p.Index, p.Driver, p.HandleHash, p.Iface, p.File, p.Old, p.Rest)
	}
	f.Add(string(PodVolume), "a/b", "..", "", "-", "", 0, "", "", "", "", false, "/etc")
	f.Fuzz(func(t *testing.T, kind, plugin, volume, id, podUID, container string, index int, driver, hash, iface, file string, old bool, rest string) {
		p := Path{
			Kind: Kind(kind), Plugin: plugin, Volume: volume, ID: id, PodUID: podUID, Container: container, Index: index,
			Driver: driver, HandleHash: hash, Iface: iface, File: file, Old: old, Rest: rest,
		}
		built, err := l.Build(p)
		if err != nil {
			return
		}
		if !inside(l, built) {
			t.Fatalf("%+v builds %q, outside the root", p, built)
		}
		if got := l.Parse(built); got != p {
			t.Fatalf("%+v builds %q, which reads as %+v", p, built, got)
		}
		for elem := range strings.SplitSeq(strings.TrimPrefix(built, root+"/"), "/") {
			if built != root && (elementFault(elem) != "") {
				t.Fatalf("%+v builds %q with the element %q", p, built, elem)
			}
		}
	})
}

// FuzzSource: identities of any text give paths below the root or an error, and
// a path that gives an identity gives the same path again.
func FuzzSource(f *testing.F) {
	l := layout1(f)
	f.Add("pv1", "10.0.0.1:3260", "iqn.2001-04.com.example:x", int32(0), "default")
	f.Add("pv1", "kube", "image", int32(1), "")
	f.Add("pv1", "aws://us-east-1a/vol-1", "[ds] a b/c.vmdk", int32(7), "..")
	f.Add("..", "50060e801049cfd1", "loopfs.test", int32(-1), "3600508b4 00105e21")
	f.Fuzz(func(t *testing.T, name, a, b string, lun int32, c string) {
		for _, s := range []Source{
			Direct{a}, Local{Device: true}, CSI{Driver: a, Handle: b}, CSI{Driver: a, Handle: b, Old: true}, CSI{Driver: a, Inline: true}, Flex{a},
			Quobyte{User: a, Group: c, Volume: b}, StorageOS{Namespace: a, Name: b}, AzureDisk{DiskName: a, URI: b},
			ISCSI{Portal: a, IQN: b, LUN: lun, Iface: c}, ISCSI{Portal: a, IQN: b, LUN: lun, InitiatorName: c},
			FC{WWNs: []string{a}, LUN: lun}, FC{WWIDs: []string{c}}, RBD{Pool: a, Image: b}, RBD{Pool: a, Image: b, Old: true},
			AWSEBS{a}, VSphere{b}, Disk{GCEPDPlugin, a},
		} {
			for _, block := range []bool{false, true} {
				set, err := l.ForSource(s, name, "u", block)
				if err != nil {
					continue
				}
				for _, path := range append(set.Metadata, set.PodVolumePath, set.PodDeviceMapPath, set.GlobalMountPath, set.GlobalMapPath) {
					if path != "" && !inside(l, path) {
						t.Fatalf("%#v has %q, outside the root", s, path)
					}
				}
				global := set.GlobalMountPath + set.GlobalMapPath
				id, ok := Identify(l.Parse(global))
				if !ok {
					continue
				}
				again, err := l.ForSource(id, name, "u", block)
				if err != nil || again.GlobalMountPath+again.GlobalMapPath != global {
					t.Fatalf("%#v is at %q, which is identified as %#v at %+v, %v", s, global, id, again, err)
				}
			}
		}
	})
}

// FuzzEscape: un-escaping undoes escaping for every name without "~", and what
// is escaped is one element.
func FuzzEscape(f *testing.F) {
	f.Add("kubernetes.io/nfs")
	f.Add("a~b/c")
	f.Fuzz(func(t *testing.T, name string) {
		escaped := EscapePlugin(name)
		if strings.Contains(escaped, "/") {
			t.Fatalf("%q escapes to %q", name, escaped)
		}
		if !strings.Contains(name, "~") && UnescapePlugin(escaped) != name {
			t.Fatalf("%q comes back as %q", name, UnescapePlugin(escaped))
		}
	})
}
