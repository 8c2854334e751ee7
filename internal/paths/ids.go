package paths

import (
	"path"
	"strconv"
	"strings"
)

// The sources whose identity is in the name of their global directories, so
// that [Identify] can read it back.

// ISCSI is a LUN of an iSCSI target.
type ISCSI struct {
	Portal string // the first portal; without a port it is 3260
	IQN    string
	LUN    int32
	Iface  string // "" is "default"
	// InitiatorName makes the kubelet clone the interface as "<portal>:<volume>".
	// It is not in the path, so Identify gives the clone as Iface instead.
	InitiatorName string
}

// PluginName is kubernetes.io/iscsi.
func (ISCSI) PluginName() string { return ISCSIPlugin }

func (s ISCSI) place(name string) (place, error) {
	if err := first(ValidPortal(s.Portal), ValidIQN(s.IQN), ValidLUN(s.LUN)); err != nil {
		return place{}, err
	}
	portal := s.Portal
	if !strings.Contains(portal, ":") {
		portal += ":3260"
	}
	iface := s.Iface
	switch {
	case s.InitiatorName != "":
		iface = portal + ":" + name
	case iface == "":
		iface = "default"
	}
	p := Path{Iface: iface, ID: portal + "-" + s.IQN + "-lun-" + strconv.Itoa(int(s.LUN))}
	where := disk(ISCSIPlugin, name, p, p)
	where.metadata = []Path{where.global}
	where.metadata[0].Kind = GlobalMetadata
	where.blockMetadata = []Path{where.globalMap}
	where.blockMetadata[0].Kind = GlobalMapMetadata
	return where, nil
}

// FC is a LUN of Fibre Channel targets, or a device by world wide identifier.
// Only the first of either is in the path.
type FC struct {
	WWNs  []string
	LUN   int32 // with WWNs
	WWIDs []string
}

// PluginName is kubernetes.io/fc.
func (FC) PluginName() string { return FCPlugin }

func (s FC) place(name string) (place, error) {
	id := ""
	switch {
	case len(s.WWNs) > 0:
		if err := first(ValidWWN(s.WWNs[0]), ValidLUN(s.LUN)); err != nil {
			return place{}, err
		}
		id = s.WWNs[0] + "-lun-" + strconv.Itoa(int(s.LUN))
	case len(s.WWIDs) > 0:
		if err := ValidWWID(s.WWIDs[0]); err != nil {
			return place{}, err
		}
		id = strings.ReplaceAll(s.WWIDs[0], " ", "_")
	default:
		return place{}, bad("fc volume", name, "it has neither targetWWNs nor wwids", "give one of them in the PV")
	}
	return disk(FCPlugin, name, Path{ID: id}, Path{ID: id}), nil
}

// RBD is an image of a Ceph pool.
type RBD struct {
	Pool, Image string
	// Old has the global mount under rbd/rbd, which a kubelet goes on using where
	// it finds it.
	Old bool
}

// PluginName is kubernetes.io/rbd.
func (RBD) PluginName() string { return RBDPlugin }

func (s RBD) place(name string) (place, error) {
	if err := first(ValidPool(s.Pool), ValidImage(s.Image)); err != nil {
		return place{}, err
	}
	id := s.Pool + "-image-" + s.Image
	where := disk(RBDPlugin, name, Path{ID: id, Old: s.Old}, Path{ID: id})
	where.metadata = []Path{where.global}
	where.metadata[0].Kind = GlobalMetadata
	return where, nil
}

// AWSEBS is an EBS volume: "vol-1" or "aws://zone/vol-1".
type AWSEBS struct{ VolumeID string }

// PluginName is kubernetes.io/aws-ebs.
func (AWSEBS) PluginName() string { return AWSEBSPlugin }

func (s AWSEBS) place(name string) (place, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(s.VolumeID, "aws://"), "/")
	for elem := range strings.SplitSeq(rest, "/") {
		if err := validDiskID("EBS volume id", elem); err != nil {
			return place{}, bad("EBS volume id", s.VolumeID, "it is not vol-... or aws://zone/vol-...", "take volumeID of the PV")
		}
	}
	return disk(AWSEBSPlugin, name,
		Path{ID: path.Clean(strings.ReplaceAll(s.VolumeID, "://", "/"))},
		Path{ID: path.Clean(s.VolumeID)}), nil
}

// VSphere is a disk file: "[datastore] dir/disk.vmdk".
type VSphere struct{ VolumePath string }

// PluginName is kubernetes.io/vsphere-volume.
func (VSphere) PluginName() string { return VSpherePlugin }

func (s VSphere) place(name string) (place, error) {
	if vmdkSpan(strings.Split(s.VolumePath, "/")) == 0 {
		return place{}, bad("vSphere volume path", s.VolumePath, "it does not end in .vmdk", "take volumePath of the PV")
	}
	p := Path{ID: s.VolumePath}
	return disk(VSpherePlugin, name, p, p), nil
}

// Disk is a cloud disk whose id is a plain name: GCE PD, Cinder, Photon.
type Disk struct{ Plugin, ID string }

// PluginName is the plugin that the value names.
func (s Disk) PluginName() string { return s.Plugin }

func (s Disk) place(name string) (place, error) {
	switch s.Plugin {
	case GCEPDPlugin, CinderPlugin, PhotonPDPlugin:
	default:
		return place{}, bad("plugin", s.Plugin, "its volumes are not known by a plain disk id", "see the names: kvol plugins")
	}
	if err := validDiskID(s.Plugin+" disk", s.ID); err != nil {
		return place{}, err
	}
	where := disk(s.Plugin, name, Path{ID: s.ID}, Path{ID: s.ID})
	if s.Plugin == PhotonPDPlugin {
		where.globalMap, where.podDevice = Path{}, false // no block support
	}
	return where, nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Identify reads the identity of a volume from its global directory. It is false
// where the path does not have it (an Azure or CSI hash), where it could be read
// in two ways (a Ceph pool with "-image-" in its name), or where it is not valid.
func Identify(p Path) (Source, bool) {
	switch p.Kind {
	case GlobalMount, GlobalMetadata, GlobalMapDir, GlobalMapDevice, GlobalMapMetadata:
	default:
		return nil, false
	}
	var s Source
	switch p.Plugin {
	case ISCSIPlugin:
		s = identifyISCSI(p)
	case FCPlugin:
		s = identifyFC(p.ID)
	case RBDPlugin:
		pool, image, ok := strings.Cut(p.ID, "-image-")
		if !ok || strings.Contains(image, "-image-") {
			return nil, false
		}
		s = RBD{Pool: pool, Image: image, Old: p.Old}
	case AWSEBSPlugin:
		id := strings.Replace(p.ID, "aws:/", "aws/", 1)
		if rest, ok := strings.CutPrefix(id, "aws/"); ok {
			id = "aws://" + rest
			if !strings.Contains(rest, "/") {
				id = "aws:///" + rest
			}
		}
		s = AWSEBS{VolumeID: id}
	case VSpherePlugin:
		s = VSphere{VolumePath: p.ID}
	case GCEPDPlugin, CinderPlugin, PhotonPDPlugin:
		s = Disk{Plugin: p.Plugin, ID: p.ID}
	case LocalPlugin:
		s = Local{Device: true}
	default:
		return nil, false
	}
	if s == nil {
		return nil, false
	}
	_, err := s.place("volume")
	return s, err == nil
}

func identifyISCSI(p Path) Source {
	end := strings.LastIndex(p.ID, "-lun-")
	if end < 0 {
		return nil
	}
	lun, err := strconv.ParseInt(p.ID[end+len("-lun-"):], 10, 32)
	if err != nil {
		return nil
	}
	// A host name can have "-", so the name's own beginning is looked for.
	for _, kind := range []string{"-iqn.", "-eui.", "-naa."} {
		if at := strings.Index(p.ID[:end], kind); at >= 0 {
			return ISCSI{Portal: p.ID[:at], IQN: p.ID[at+1 : end], LUN: int32(lun), Iface: p.Iface}
		}
	}
	return nil
}

func identifyFC(id string) Source {
	wwn, text, ok := strings.Cut(id, "-lun-")
	if !ok {
		return FC{WWIDs: []string{id}}
	}
	lun, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil
	}
	return FC{WWNs: []string{wwn}, LUN: int32(lun)}
}
