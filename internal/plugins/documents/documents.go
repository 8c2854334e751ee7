// Package documents reads the Kubernetes objects that an operator gives with -f,
// and selects the one volume and the pod that a command is for.
//
// Input is foreign: it is bounded before it is expanded, every field is known or
// refused by name and line, and no value of a Secret gets into a message. Do not use
// it for what the kubelet keeps on disk.
package documents

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Input is one file of objects, YAML or JSON.
type Input struct {
	// Name is for messages: the path, or "-" for standard input.
	Name string
	// Read gives the whole of it. It need not give more than [MaxInput] and one
	// byte, which is refused.
	Read func() ([]byte, error)
}

// Documents are the objects that were given, each kind in the order of the input.
type Documents struct {
	PVs            []*v1.PersistentVolume
	PVCs           []*v1.PersistentVolumeClaim
	Pods           []*v1.Pod
	Secrets        []*v1.Secret // stringData is in Data
	ConfigMaps     []*v1.ConfigMap
	StorageClasses []*storagev1.StorageClass
	CSIDrivers     []*storagev1.CSIDriver
	// VolumeAttachments tell what attaching a CSI volume gave.
	VolumeAttachments []*storagev1.VolumeAttachment

	origins map[metav1.Object]origin
}

// origin is where an object was read.
type origin struct {
	input string
	doc   int    // from 1, as the separators count; nothing is left out
	item  string // "items[3]" of a list
	kind  string
	name  string
}

// String is what a message says beside the input: document 2, items[0], Pod "a".
func (o origin) String() string {
	s := fmt.Sprintf("document %d", o.doc)
	if o.item != "" {
		s += ", " + o.item
	}
	if o.kind != "" {
		s += ", " + o.kind
	}
	if o.name != "" {
		s += fmt.Sprintf(" %q", o.name)
	}
	return s
}

// bad is a fault of an object as a whole.
func (o origin) bad(next, format string, args ...any) *api.Error {
	return badInput(o.input, next, "%s: %w", o, fmt.Errorf(format, args...))
}

func badInput(input, next, format string, args ...any) *api.Error {
	if input == "-" {
		input = "standard input"
	}
	return api.Errorf(api.ErrInput, format, args...).At(input).WithNext("%s", next)
}

// short cuts a word of the input to what a person reads.
func short(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// printable is a word of the input as a message may have it: short, and quoted
// where it is odd.
func printable(s string) string {
	s = short(s)
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// newObject is an empty object of a kind that is read, and its apiVersion; nil
// for every other kind.
func newObject(kind string) (metav1.Object, string) {
	switch kind {
	case "PersistentVolume":
		return &v1.PersistentVolume{}, "v1"
	case "PersistentVolumeClaim":
		return &v1.PersistentVolumeClaim{}, "v1"
	case "Pod":
		return &v1.Pod{}, "v1"
	case "Secret":
		return &v1.Secret{}, "v1"
	case "ConfigMap":
		return &v1.ConfigMap{}, "v1"
	case "StorageClass":
		return &storagev1.StorageClass{}, "storage.k8s.io/v1"
	case "CSIDriver":
		return &storagev1.CSIDriver{}, "storage.k8s.io/v1"
	case "VolumeAttachment":
		return &storagev1.VolumeAttachment{}, "storage.k8s.io/v1"
	}
	return nil, ""
}

const kindsRead = "PersistentVolume, PersistentVolumeClaim, Pod, Secret, ConfigMap, StorageClass, CSIDriver, VolumeAttachment and lists of them are read"

// Read reads Kubernetes objects, as strictly as the API server does: an
// unknown field is a fault, not a shrug, because a field that is misspelt would
// otherwise be as if it were not there. Only in status, which nobody writes by
// hand and which newer releases extend, is it let pass. Every error is
// [api.ErrInput] and names the input, the document, the line, the field, and what
// to do. No value of a Secret is ever in one.
//
// What comes back is bounded in time and memory whatever the input is: by its
// size, its depth, the number of values, and what aliases expand to.
func Read(in []Input) (*Documents, error) {
	d := &Documents{origins: map[metav1.Object]origin{}}
	for _, input := range in {
		data, err := input.Read()
		if err != nil {
			return nil, readError(input.Name, err)
		}
		if err := d.read(input.Name, data); err != nil {
			return nil, err
		}
	}
	if err := d.checkTwice(); err != nil {
		return nil, err
	}
	return d, nil
}

func readError(name string, err error) error {
	if _, ok := errors.AsType[*api.Error](err); ok {
		return err
	}
	next := "give a file that can be read"
	if errors.Is(err, fs.ErrNotExist) {
		next = "look for the right name: ls -l " + api.Quote(name)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the input is named already
	}
	return badInput(name, next, "cannot be read: %w", err)
}

// read takes in one input. The recover is for the YAML library, which has
// panicked on hostile input before (CVE-2022-28948).
func (d *Documents) read(name string, data []byte) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = badInput(name, "write it in plainer YAML, or as JSON", "the YAML library failed on it: %v", fault)
		}
	}()
	roots, err := parse(name, data)
	if err != nil {
		return err
	}
	for i, root := range roots {
		if isNull(root) {
			continue // only comments between two separators
		}
		if err := d.readObject(origin{input: name, doc: i + 1}, root, ""); err != nil {
			return err
		}
	}
	return nil
}

// readObject takes in one object or list. An item of a typed list, as the API
// gives it, has neither kind nor apiVersion: then it is of the kind given.
func (d *Documents) readObject(o origin, root *yaml.Node, kind string) error {
	root = resolved(root)
	if root.Kind != yaml.MappingNode {
		return o.bad("begin it with apiVersion and kind; several objects are documents parted by ---, or a List",
			"line %d: %s where an object is wanted", root.Line, describe(root, true))
	}
	version := ""
	if kind != "" {
		_, version = newObject(kind)
	}
	for field, value := range map[string]*string{"kind": &kind, "apiVersion": &version} {
		n := lookup(root, field)
		if n == nil || isNull(n) {
			continue
		}
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			return o.bad("write it as Kubernetes does: "+field+" is text", "line %d: %s: %s", n.Line, field, describe(n, false))
		}
		if *value != "" && *value != n.Value {
			return o.bad("make them agree", "line %d: %s %q in a list of %s %q", n.Line, field, short(n.Value), field, *value)
		}
		*value = short(n.Value)
	}
	if kind == "" {
		return o.bad(kindsRead, "line %d: it has no kind", root.Line)
	}
	item, isList := strings.CutSuffix(kind, "List")
	obj, want := newObject(item)
	switch {
	case kind == "List":
		item, want = "", "v1"
	case obj == nil:
		return o.bad("take it out: "+kindsRead, "line %d: kind %q is not read", root.Line, kind)
	}
	o.kind = kind
	if version != want {
		return o.bad("write apiVersion: "+want, "line %d: apiVersion is %q, but a %s is %s", root.Line, version, kind, want)
	}
	if isList {
		return d.readList(o, root, item)
	}
	return d.readOne(o, root, obj)
}

func (d *Documents) readList(o origin, root *yaml.Node, kind string) error {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []yaml.Node `json:"items"`
	}
	if err := decode(o, root, &list); err != nil {
		return err
	}
	outer := o.item
	if outer != "" {
		outer += "."
	}
	for i := range list.Items {
		o := origin{input: o.input, doc: o.doc, item: fmt.Sprintf("%sitems[%d]", outer, i)}
		if err := d.readObject(o, &list.Items[i], kind); err != nil {
			return err
		}
	}
	return nil
}

func (d *Documents) readOne(o origin, root *yaml.Node, obj metav1.Object) error {
	if meta := lookup(root, "metadata"); meta != nil {
		if n := lookup(meta, "name"); n != nil && n.Kind == yaml.ScalarNode {
			o.name = short(n.Value)
		}
	}
	if err := decode(o, root, obj); err != nil {
		return err
	}
	if err := check(o, root, obj); err != nil {
		return err
	}
	d.origins[obj] = o
	switch x := obj.(type) {
	case *v1.PersistentVolume:
		d.PVs = append(d.PVs, x)
	case *v1.PersistentVolumeClaim:
		d.PVCs = append(d.PVCs, x)
	case *v1.Pod:
		d.Pods = append(d.Pods, x)
	case *v1.Secret:
		foldStringData(x)
		d.Secrets = append(d.Secrets, x)
	case *v1.ConfigMap:
		d.ConfigMaps = append(d.ConfigMaps, x)
	case *storagev1.StorageClass:
		d.StorageClasses = append(d.StorageClasses, x)
	case *storagev1.CSIDriver:
		d.CSIDrivers = append(d.CSIDrivers, x)
	case *storagev1.VolumeAttachment:
		d.VolumeAttachments = append(d.VolumeAttachments, x)
	}
	return nil
}

// foldStringData does what the API server does on a write.
func foldStringData(s *v1.Secret) {
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// checkTwice refuses two objects that Kubernetes could not have at once. Two pods
// of one name are two when their UIDs differ: the second was made anew.
func (d *Documents) checkTwice() error {
	seen := map[string]origin{}
	once := func(obj metav1.Object, id string) error {
		o := d.origins[obj]
		id = o.kind + " " + id
		if first, ok := seen[id]; ok {
			return o.bad("give it once", "%s is there twice, first in %s, %s", id, first.input, first)
		}
		seen[id] = o
		return nil
	}
	var err error
	for obj := range d.all {
		id := obj.GetName()
		switch obj.(type) {
		case *v1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSIDriver, *storagev1.VolumeAttachment:
		case *v1.Pod:
			if uid := obj.GetUID(); uid != "" {
				id = "uid " + string(uid)
				break
			}
			id = key(obj)
		default:
			id = key(obj)
		}
		if err = once(obj, id); err != nil {
			return err
		}
	}
	return nil
}

// all goes through the objects in the order of their kinds.
func (d *Documents) all(yield func(metav1.Object) bool) {
	_ = each(d.PVs, yield) && each(d.PVCs, yield) && each(d.Pods, yield) && each(d.Secrets, yield) &&
		each(d.ConfigMaps, yield) && each(d.StorageClasses, yield) && each(d.CSIDrivers, yield) &&
		each(d.VolumeAttachments, yield)
}

func each[T metav1.Object](list []T, yield func(metav1.Object) bool) bool {
	for _, obj := range list {
		if !yield(obj) {
			return false
		}
	}
	return true
}

// key is namespace/name; an object without a namespace is in "default", as it is
// for kubectl.
func key(obj metav1.Object) string { return namespace(obj.GetNamespace()) + "/" + obj.GetName() }

func namespace(ns string) string {
	if ns == "" {
		return "default"
	}
	return ns
}
