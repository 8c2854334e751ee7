package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
	"github.com/kvol/kvol/internal/plugins/documents"
)

// evidence is everything that tells what a vol_data.json has to say: the other copies,
// the mounts, the names of directories, the documents, and what kvol itself did.
type evidence struct {
	host    *host.Host
	find    *node.Find
	req     RecoverRequest
	places  []node.VolData
	history []api.Entry
	hashes  map[string]string // of handles
}

func (o *Ops) gather(req RecoverRequest) (*evidence, error) {
	e := &evidence{host: o.host, req: req, hashes: map[string]string{}}
	var err error
	if e.find, err = node.NewFind(o.host); err != nil {
		return nil, err
	}
	var warnings []string
	if e.places, warnings, err = e.find.VolData(); err != nil {
		return nil, err
	}
	for _, w := range warnings {
		o.host.Warn(w)
	}
	if e.history, _, err = o.entries(); err != nil {
		o.host.Warn(err.Error()) // one source less
	}
	return e, nil
}

// hash is the directory's name of a handle; there may be many places to compare.
func (e *evidence) hash(handle string) string {
	if e.hashes[handle] == "" {
		e.hashes[handle] = paths.HandleHash(handle)
	}
	return e.hashes[handle]
}

// staged says that a place is the staging directory of a handle.
func (e *evidence) staged(v node.VolData, driver, handle string) bool {
	return v.HandleHash != "" && v.Driver == driver && v.HandleHash == e.hash(handle)
}

// now is a place as it was found this time.
func (e *evidence) now(v node.VolData) (node.VolData, error) {
	for _, now := range e.places {
		if now.File == v.File {
			return now, nil
		}
	}
	return v, api.Errorf(api.ErrNotFound, "the volume's directory went meanwhile").At(v.File).WithNext("see what is left: kvol list-mounts")
}

// label is the name of a place's volume, for people and for the lock: its spec name,
// else driver^handle, else the directory.
func (e *evidence) label(v node.VolData) string {
	return cmp.Or(v.Volume, e.volumeName(v), v.Driver+"^"+v.HandleHash)
}

func (e *evidence) volumeName(v node.VolData) string {
	c := e.claims(v)
	driver, handle := c.first(voldata.Driver), c.first(voldata.Handle)
	if driver == "" || handle == "" {
		return ""
	}
	return driver + "^" + handle
}

// claim is what one source says of one key.
type claim = api.FileValue

type claims []claim

func (c *claims) add(from string, keysAndValues ...string) {
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		if keysAndValues[i+1] != "" {
			*c = append(*c, claim{Key: keysAndValues[i], Value: keysAndValues[i+1], From: from})
		}
	}
}

func (c claims) first(key string) string {
	for _, one := range c {
		if one.Key == key {
			return one.Value
		}
	}
	return ""
}

// one is the claim of a key that all sources agree on; nil when there is none.
func (c claims) one(key string) (*claim, error) {
	var found *claim
	var said []string
	for i := range c {
		if c[i].Key != key {
			continue
		}
		if found == nil {
			found = &c[i]
		}
		said = append(said, fmt.Sprintf("%s says %s", c[i].From, c[i].Value))
	}
	for _, one := range c {
		if one.Key == key && one.Value != found.Value {
			e := api.Errorf(api.ErrRefused, "what tells the %s disagrees, so nothing is written", key)
			e.Details = said
			return nil, e.WithNext("find out which is right (kvol inspect shows the mounts); a wrong file is moved away, a wrong document left out")
		}
	}
	return found, nil
}

// keys of each place, as the kubelet writes them.
var fileKeys = map[paths.Kind][]string{
	paths.PodVolumeMetadata: {voldata.Attachment, voldata.Driver, voldata.Node, voldata.Spec, voldata.Handle, voldata.Lifecycle},
	paths.GlobalMapMetadata: {voldata.Attachment, voldata.Driver, voldata.Node, voldata.Spec, voldata.Handle},
	paths.GlobalMetadata:    {voldata.Driver, voldata.Handle},
}

// values are the keys of a place and who tells each: refused where two disagree, or
// something is told by nobody. A file that can be read has to agree as well.
func (e *evidence) values(v node.VolData) ([]api.FileValue, error) {
	c := e.claims(v)
	if err := e.contradicts(v, c); err != nil {
		return nil, err
	}
	if v.Wrong == "" {
		for _, key := range []string{voldata.Driver, voldata.Handle, voldata.Spec} {
			if _, err := c.one(key); err != nil {
				return nil, at(err, v.File)
			}
		}
		return nil, nil
	}
	e.fallBack(v, &c)
	e.derive(v, &c)
	var out []api.FileValue
	var unknown []string
	for _, key := range fileKeys[v.Kind] {
		known, err := c.one(key)
		switch {
		case err != nil:
			return nil, at(err, v.File)
		case known == nil:
			unknown = append(unknown, key)
		default:
			out = append(out, *known)
		}
	}
	if len(unknown) > 0 {
		return nil, e.unknown(v, out, unknown)
	}
	if context := v.Data[voldata.SELinux]; context != "" {
		out = append(out, claim{Key: voldata.SELinux, Value: context, From: left})
	}
	slices.SortFunc(out, func(a, b claim) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func at(err error, file string) error { return &api.Error{Path: file, Err: err} }

// contradicts refuses a name of the volume that its directory does not have.
func (e *evidence) contradicts(v node.VolData, c claims) error {
	for _, one := range c {
		fault := ""
		switch {
		case v.HandleHash != "" && one.Key == voldata.Handle && e.hash(one.Value) != v.HandleHash:
			fault = "the directory is that of another handle: its name is not the SHA-256 of this one"
		case v.HandleHash != "" && one.Key == voldata.Driver && one.Value != v.Driver:
			fault = "the directory is that of driver " + v.Driver
		case v.Volume != "" && one.Key == voldata.Spec && paths.EscapePlugin(one.Value) != v.Volume:
			fault = "the directory is that of volume " + v.Volume
		case one.Key == voldata.Handle && e.otherStaging(v, one.Value) != "":
			fault = "the mount table has it mounted from the staging directory of another handle: " + e.otherStaging(v, one.Value)
		default:
			continue
		}
		err := api.Errorf(api.ErrRefused, "%s says that %s is %q, but %s", one.From, one.Key, one.Value, fault).At(v.File)
		return err.WithNext("find out which is right; a wrong file is moved away, a wrong document left out, then the same command again")
	}
	return nil
}

// otherStaging is the staging directory that a pod's volume is mounted from, where it
// is not that of a handle.
func (e *evidence) otherStaging(v node.VolData, handle string) string {
	for _, o := range e.places {
		if v.Kind == paths.PodVolumeMetadata && o.HandleHash != "" && v.Shows(o) && o.HandleHash != e.hash(handle) {
			return o.Target
		}
	}
	return ""
}

// unknown says what is missing and who could tell.
func (e *evidence) unknown(v node.VolData, known []claim, missing []string) error {
	err := api.Errorf(api.ErrRefused, "%s, and nothing on this node tells its %s", v.Wrong, strings.Join(missing, ", ")).At(v.File)
	for _, k := range known {
		err.Details = append(err.Details, fmt.Sprintf("%s is %s: %s", k.Key, k.Value, k.From))
	}
	for _, item := range e.req.Given {
		if source := item.Spec.Source(); source != "csi" && paths.EscapePlugin(item.Spec.Name()) == v.Volume {
			err.Details = append(err.Details, fmt.Sprintf("-f: %s is of source %s", item.Spec.Name(), source))
		}
	}
	if v.Kind == paths.PodVolumeMetadata {
		return err.WithNext("give the volume's document: -f pv.yaml (kubectl get pv %s -o yaml), or of an inline volume its pod's: -f pod.yaml", v.Volume)
	}
	return err.WithNext("give the volume's document: -f pv.yaml (kubectl get pv -o yaml; all of them can be given)")
}

const left = "what is left of the file"

// claims is what the sources say of a place. Whatever is only of the same name is no
// source for a pod's volume: an inline volume may have the name of a PersistentVolume.
func (e *evidence) claims(v node.VolData) claims {
	var c claims
	from := left
	if v.Wrong == "" {
		from = "the file itself"
	}
	for _, key := range fileKeys[paths.PodVolumeMetadata] {
		c.add(from, key, v.Data[key])
	}
	const dir = "the name of the directory"
	if v.HandleHash != "" {
		c.add(dir, voldata.Driver, v.Driver)
	}
	if v.Kind != paths.GlobalMetadata && !strings.Contains(v.Volume, "~") { // which stands for a slash, or itself
		c.add(dir, voldata.Spec, v.Volume)
	}
	for _, o := range e.places {
		if o.File != v.File {
			e.copy(v, o, &c)
		}
	}
	for _, item := range e.req.Given {
		e.given(v, item, &c)
	}
	if driver, handle, ok := strings.Cut(e.req.Word, "^"); ok && e.staged(v, driver, handle) {
		c.add("the command line", voldata.Handle, handle)
	}
	return c
}

// inline says that a place is of an inline volume, of which no other place tells.
func inline(v node.VolData) bool {
	return v.Kind == paths.PodVolumeMetadata &&
		(v.Data[voldata.Lifecycle] == voldata.Ephemeral || v.Data[voldata.Handle] == paths.CSIInlineHandle(v.PodUID, v.Data[voldata.Spec]))
}

// copy is what the file at another place says of this one.
func (e *evidence) copy(v, o node.VolData, c *claims) {
	driver, handle := o.Data[voldata.Driver], o.Data[voldata.Handle]
	whole := o.Wrong == "" && !inline(o)
	switch {
	case v.Kind == paths.PodVolumeMetadata:
		// Only what is mounted from there, or as well, is surely the same volume.
		if !v.Shows(o) || inline(v) || inline(o) {
			return
		}
		c.add("the mount table: it is mounted from "+o.Target, voldata.Driver, o.Driver)
		if whole {
			c.add("the mount table and "+o.File, voldata.Driver, driver, voldata.Handle, handle)
		}
	case v.HandleHash != "":
		if e.staged(v, driver, handle) { // the hash is proof, also of what is left of a file
			c.add(o.File, voldata.Handle, handle)
		}
		if whole && v.Shows(o) {
			c.add("the mount table and "+o.File, voldata.Driver, driver, voldata.Handle, handle)
		}
	case whole && o.HandleHash == "" && (o.Data[voldata.Spec] == v.Volume || o.Kind == paths.GlobalMetadata && o.Volume == v.Volume):
		c.add(o.File, voldata.Driver, driver, voldata.Handle, handle)
	}
}

// given is what a document says of a place.
func (e *evidence) given(v node.VolData, item documents.Item, c *claims) {
	spec := item.Spec
	from := "-f: PersistentVolume " + spec.Name()
	switch {
	case v.HandleHash != "":
		if pv := spec.PersistentVolume; pv != nil && pv.Spec.CSI != nil && e.staged(v, pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle) {
			c.add(from, voldata.Handle, pv.Spec.CSI.VolumeHandle)
		}
	case paths.EscapePlugin(spec.Name()) != v.Volume:
	case spec.PersistentVolume != nil && spec.PersistentVolume.Spec.CSI != nil:
		csi := spec.PersistentVolume.Spec.CSI
		c.add(from, voldata.Driver, csi.Driver, voldata.Handle, csi.VolumeHandle, voldata.Spec, spec.Name(), voldata.Lifecycle, voldata.Persistent)
	case spec.Volume != nil && spec.Volume.CSI != nil && item.Pod.UID == v.PodUID:
		c.add("-f: pod "+item.Pod.Namespace+"/"+item.Pod.Name, voldata.Driver, spec.Volume.CSI.Driver, voldata.Spec, spec.Name(),
			voldata.Handle, paths.CSIInlineHandle(v.PodUID, spec.Name()), voldata.Lifecycle, voldata.Ephemeral)
	}
}

// fallBack asks those who may be out of date, for what nobody else told: what kvol
// recorded itself, and this host's name.
func (e *evidence) fallBack(v node.VolData, c *claims) {
	driver, handle := c.first(voldata.Driver), c.first(voldata.Handle)
	for _, entry := range slices.Backward(e.history) {
		d, h, ok := strings.Cut(entry.VolumeName, "^")
		if !ok || entry.Plugin != paths.CSIPlugin || driver != "" && d != driver || handle != "" && h != handle {
			continue
		}
		var same bool
		switch {
		case v.HandleHash != "":
			same = e.staged(v, d, h)
		case v.Kind == paths.PodVolumeMetadata:
			same = entry.PodUID == v.PodUID && paths.EscapePlugin(entry.Volume) == v.Volume
		default:
			same = paths.EscapePlugin(entry.Volume) == v.Volume && h != paths.CSIInlineHandle(entry.PodUID, entry.Volume)
		}
		if !same {
			continue
		}
		from := "the history: " + entry.Verb + " of " + entry.Time.UTC().Format("2006-01-02 15:04:05")
		if driver == "" {
			c.add(from, voldata.Driver, d)
		}
		if handle == "" {
			c.add(from, voldata.Handle, h)
		}
		break
	}
	if c.first(voldata.Node) != "" {
		return
	}
	for _, o := range e.places {
		if o.Wrong == "" {
			c.add(o.File, voldata.Node, o.Data[voldata.Node])
		}
	}
	c.add("--node-name, or the kubelet's", voldata.Node, e.req.NodeName)
	if c.first(voldata.Node) == "" {
		c.add("this host's name", voldata.Node, e.host.NodeName)
	}
}

// derive is what follows from the rest.
func (e *evidence) derive(v node.VolData, c *claims) {
	driver, handle, name, spec := c.first(voldata.Driver), c.first(voldata.Handle), c.first(voldata.Node), c.first(voldata.Spec)
	if driver == "" || handle == "" || name == "" {
		return
	}
	c.add("the handle, the driver and the node", voldata.Attachment, paths.CSIAttachmentID(handle, driver, name))
	if c.first(voldata.Lifecycle) != "" || spec == "" {
		return
	}
	if handle == paths.CSIInlineHandle(v.PodUID, spec) {
		c.add("the handle is that of an inline volume of this pod", voldata.Lifecycle, voldata.Ephemeral)
	} else {
		c.add("the handle is not that of an inline volume", voldata.Lifecycle, voldata.Persistent)
	}
}
