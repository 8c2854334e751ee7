package paths

// One method for each path helper of the kubelet. All give an absolute path or
// an [api.ErrInput]; [Layout.Build] has the paths that are not here.

// PodDir is pods/<uid>.
func (l Layout) PodDir(uid string) (string, error) {
	return l.Build(Path{Kind: PodDir, PodUID: uid})
}

// PodVolumesDir is pods/<uid>/volumes.
func (l Layout) PodVolumesDir(uid string) (string, error) {
	return l.Build(Path{Kind: PodVolumesDir, PodUID: uid})
}

// PodVolumeDir is pods/<uid>/volumes/<plugin>/<volume>.
func (l Layout) PodVolumeDir(uid, plugin, volume string) (string, error) {
	return l.Build(Path{Kind: PodVolume, PodUID: uid, Plugin: plugin, Volume: podVolumeName(plugin, volume)})
}

// PodVolumePath is where the volume is mounted for the pod: the PodVolumeDir,
// and for CSI "mount" in it.
func (l Layout) PodVolumePath(uid, plugin, volume string) (string, error) {
	if plugin != CSIPlugin {
		return l.PodVolumeDir(uid, plugin, volume)
	}
	return l.Build(Path{Kind: PodVolumeMount, PodUID: uid, Plugin: plugin, Volume: podVolumeName(plugin, volume)})
}

// podVolumeName is the volume's name as its directory in a pod has it. CSI alone
// escapes it, for the names that the translation of in-tree volumes makes.
func podVolumeName(plugin, volume string) string {
	if plugin == CSIPlugin {
		return EscapePlugin(volume)
	}
	return volume
}

// PodDeviceMapPath is the link to a block volume's device,
// pods/<uid>/volumeDevices/<plugin>/<volume>.
func (l Layout) PodDeviceMapPath(uid, plugin, volume string) (string, error) {
	return l.Build(Path{Kind: PodDevice, PodUID: uid, Plugin: plugin, Volume: podVolumeName(plugin, volume)})
}

// SubPathsDir is pods/<uid>/volume-subpaths.
func (l Layout) SubPathsDir(uid string) (string, error) {
	return l.Build(Path{Kind: SubPathsDir, PodUID: uid})
}

// SubPath is pods/<uid>/volume-subpaths/<volume>/<container>/<index>.
func (l Layout) SubPath(uid, volume, container string, index int) (string, error) {
	return l.Build(Path{Kind: SubPath, PodUID: uid, Volume: volume, Container: container, Index: index})
}

// ReadyMarker is pods/<uid>/plugins/<plugin>/<name>/ready. Secret, configMap,
// downwardAPI and projected volumes have theirs as emptyDir "wrapped_<volume>";
// [Layout.ForSource] knows.
func (l Layout) ReadyMarker(uid, plugin, name string) (string, error) {
	return l.Build(Path{Kind: ReadyMarker, PodUID: uid, Plugin: plugin, Volume: name})
}

// PodContainerDir is pods/<uid>/containers/<container>.
func (l Layout) PodContainerDir(uid, container string) (string, error) {
	return l.Build(Path{Kind: PodContainerDir, PodUID: uid, Container: container})
}

// PodEtcHosts is pods/<uid>/etc-hosts.
func (l Layout) PodEtcHosts(uid string) (string, error) {
	return l.Build(Path{Kind: PodEtcHosts, PodUID: uid})
}

// GlobalMapDevice is the bind of the device for one pod in a global map
// directory: what a [GlobalMapDir] path gives with the pod's uid.
func (l Layout) GlobalMapDevice(mapDir Path, uid string) (string, error) {
	if mapDir.Kind != GlobalMapDir || mapDir.Rest != "" {
		return "", bad("path", string(mapDir.Kind), "it is not a global map directory", "give the volume's global map path")
	}
	mapDir.Kind, mapDir.PodUID = GlobalMapDevice, uid
	return l.Build(mapDir)
}

// LocalGlobalMountPath is plugins/kubernetes.io/local-volume/mounts/<pv>, for a
// local volume that is a block device with a file system.
func (l Layout) LocalGlobalMountPath(pv string) (string, error) {
	return l.Build(Path{Kind: GlobalMount, Plugin: LocalPlugin, Volume: pv})
}

// LocalGlobalMapPath is plugins/kubernetes.io~local-volume/volumeDevices/<pv>.
func (l Layout) LocalGlobalMapPath(pv string) (string, error) {
	return l.Build(Path{Kind: GlobalMapDir, Plugin: LocalPlugin, Volume: pv})
}

// CSIStagingPath is plugins/kubernetes.io/csi/<driver>/<hash of handle>/globalmount.
func (l Layout) CSIStagingPath(driver, handle string) (string, error) {
	return l.Build(Path{Kind: GlobalMount, Plugin: CSIPlugin, Driver: driver, HandleHash: HandleHash(handle)})
}

// CSIGlobalMountOld is plugins/kubernetes.io/csi/pv/<pv>/globalmount, the staging
// path up to about Kubernetes 1.23.
func (l Layout) CSIGlobalMountOld(pv string) (string, error) {
	return l.Build(Path{Kind: GlobalMount, Plugin: CSIPlugin, Volume: pv, Old: true})
}

// CSIBlockMapPath is plugins/kubernetes.io/csi/volumeDevices/<pv>/dev.
func (l Layout) CSIBlockMapPath(pv string) (string, error) {
	return l.Build(Path{Kind: GlobalMapDir, Plugin: CSIPlugin, Volume: podVolumeName(CSIPlugin, pv)})
}

// CSIBlockMetadataPath is plugins/kubernetes.io/csi/volumeDevices/<pv>/data/vol_data.json.
func (l Layout) CSIBlockMetadataPath(pv string) (string, error) {
	return l.Build(Path{Kind: GlobalMapMetadata, Plugin: CSIPlugin, Volume: podVolumeName(CSIPlugin, pv)})
}

// CSIBlockStagingPath is plugins/kubernetes.io/csi/volumeDevices/staging/<pv>.
func (l Layout) CSIBlockStagingPath(pv string) (string, error) {
	return l.Build(Path{Kind: CSIBlockStaging, Plugin: CSIPlugin, Volume: pv})
}

// CSIBlockPublishPath is plugins/kubernetes.io/csi/volumeDevices/publish/<pv>/<uid>.
func (l Layout) CSIBlockPublishPath(pv, uid string) (string, error) {
	return l.Build(Path{Kind: CSIBlockPublish, Plugin: CSIPlugin, Volume: pv, PodUID: uid})
}

// CSIBlock is everything that a raw block volume of CSI has beside the pods' directories.
type CSIBlock struct {
	Dir       string // plugins/kubernetes.io/csi/volumeDevices/<pv>, which holds
	Map       string // the CSIBlockMapPath
	Metadata  string // and the CSIBlockMetadataPath
	Staging   string // the CSIBlockStagingPath
	Publishes string // holds a CSIBlockPublishPath per pod; up to about Kubernetes 1.16 it is the published file itself
}

// CSIBlock gives the places of a raw block volume of CSI.
func (l Layout) CSIBlock(pv string) (CSIBlock, error) {
	var at CSIBlock
	escaped := podVolumeName(CSIPlugin, pv)
	for _, place := range []struct {
		to     *string
		kind   Kind
		volume string
	}{
		{&at.Dir, CSIBlockDir, escaped}, {&at.Map, GlobalMapDir, escaped}, {&at.Metadata, GlobalMapMetadata, escaped},
		{&at.Staging, CSIBlockStaging, pv}, {&at.Publishes, CSIBlockPublishDir, pv},
	} {
		path, err := l.Build(Path{Kind: place.kind, Plugin: CSIPlugin, Volume: place.volume})
		if err != nil {
			return CSIBlock{}, err
		}
		*place.to = path
	}
	return at, nil
}

// MetadataPath is the file that a kubelet keeps beside the volume that a path is of:
// the vol_data.json of a CSI volume, which a raw block volume has one of for all pods,
// or the ready marker of an emptyDir and what is made as one. It is "" where there is
// none.
func (l Layout) MetadataPath(path string) string {
	at := l.Parse(path)
	file := Path{Plugin: CSIPlugin, Volume: at.Volume}
	switch at.Kind {
	case PodVolume, PodVolumeMount, PodVolumeMetadata:
		file.Kind, file.PodUID = PodVolumeMetadata, at.PodUID
	case GlobalMount, GlobalMetadata, CSIVolumeDir:
		file.Kind, file.Driver, file.HandleHash, file.Old = GlobalMetadata, at.Driver, at.HandleHash, at.Old
	case PodDevice, GlobalMapDir, GlobalMapDevice, GlobalMapMetadata, CSIBlockDir, CSIBlockDataDir,
		CSIBlockStaging, CSIBlockPublishDir, CSIBlockPublish:
		file.Kind = GlobalMapMetadata
	}
	if at.Plugin != CSIPlugin {
		where, _ := Direct{at.Plugin}.place(at.Volume) // other plugins keep none
		if at.Kind != PodVolume || len(where.metadata) == 0 {
			return ""
		}
		file = inPod(where.metadata[0], at.PodUID)
	}
	out, _ := l.Build(file) // what has an odd name has none
	return out
}
