package safefs

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

const (
	pod    = "pods/52a4fa2e-7e24-44be-a5e5-06648a756e67"
	hash   = "619869ea966047280f1e68891db3acbd2f71028d37d84ee68c856adc9d7792a4"
	csi    = "plugins/kubernetes.io/csi/"
	secret = pod + "/volumes/kubernetes.io~secret/s/"
)

var metas = []Meta{
	VolData, ISCSIData, ReadyMarker, EtcHosts, UserNS, ContainerFile, BindTarget, DeviceLink, AtomicWriterFile, TempFile,
}

// TestMetadataList unlinks every entry of the list in its place, after every other
// entry's name for it was refused.
func TestMetadataList(t *testing.T) {
	list := []struct {
		entry string // as for plant
		what  Meta
	}{
		{pod + "/volumes/kubernetes.io~csi/v/vol_data.json={}", VolData},
		{csi + "hostpath.csi.k8s.io/" + hash + "/vol_data.json={}", VolData},
		{csi + "pv/pvc-1/vol_data.json={}", VolData},
		{csi + "volumeDevices/pvc-1/data/vol_data.json={}", VolData},
		{"plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-0/iscsi.json={}", ISCSIData},
		{"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-0/iscsi.json={}", ISCSIData},
		{pod + "/plugins/kubernetes.io~empty-dir/wrapped_cm/ready=", ReadyMarker},
		{pod + "/etc-hosts=127.0.0.1", EtcHosts},
		{pod + "/userns={}", UserNS},
		{pod + "/containers/main/4f937ac4=said", ContainerFile},
		{pod + "/volume-subpaths/cm/main/7=", BindTarget},
		{csi + "volumeDevices/publish/pvc-1/52a4fa2e-7e24-44be-a5e5-06648a756e67=", BindTarget},
		{csi + "volumeDevices/publish/old=", BindTarget},
		{csi + "volumeDevices/staging/pvc-1/device=", BindTarget},
		{csi + "volumeDevices/pvc-1/dev/52a4fa2e-7e24-44be-a5e5-06648a756e67=", BindTarget},
		{"plugins/kubernetes.io~local-volume/volumeDevices/pv/52a4fa2e-7e24-44be-a5e5-06648a756e67=", BindTarget},
		{"plugins/kubernetes.io/gce-pd/volumeDevices/disk/52a4fa2e-7e24-44be-a5e5-06648a756e67=", BindTarget},
		{pod + "/volumeDevices/kubernetes.io~local-volume/pv->/dev/loop4", DeviceLink},
		{secret + "..data->..2026_01_01_00_00_00.1", AtomicWriterFile},
		{secret + "..data_tmp->..2026_01_01_00_00_01.1", AtomicWriterFile},
		{secret + "..2026_01_01_00_00_00.1/token=x", AtomicWriterFile},
		{secret + "..2026_01_01_00_00_00.1/dir/token=x", AtomicWriterFile},
		{secret + "token->..data/token", AtomicWriterFile},
		{secret + "dir/token->../..data/dir/token", AtomicWriterFile},
		{pod + "/volumes/kubernetes.io~configmap/c/k->..data/k", AtomicWriterFile},
		{pod + "/volumes/kubernetes.io~csi/v/.vol_data.json.kvol-tmp={", TempFile},
		{pod + "/plugins/kubernetes.io~empty-dir/e/.ready.kvol-tmp=", TempFile},
	}
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		r := openLayout(t, dir, opt)
		for _, c := range list {
			plant(t, dir, c.entry)
			name := entryName(c.entry)
			for _, other := range metas {
				if other != c.what {
					wantErr(t, r.Unlink(name, other), api.ErrRefused, filepath.Join(dir, name))
				}
			}
			wantErr(t, r.Unlink(name, c.what), nil, "")
			wantErr(t, r.Unlink(name, c.what), api.ErrNotFound, filepath.Join(dir, name))
		}
	})
}

// TestNotOnTheList: data is what has the name but not the place, the place but
// not the type, or anything else; nothing of it can be unlinked under any name.
func TestNotOnTheList(t *testing.T) {
	data := []string{
		pod + "/volumes/kubernetes.io~empty-dir/cache/vol_data.json={}",
		pod + "/volumes/kubernetes.io~empty-dir/cache/ready=",
		pod + "/volumes/kubernetes.io~empty-dir/cache/etc-hosts=",
		pod + "/volumes/kubernetes.io~empty-dir/cache/empty=",
		pod + "/volumes/kubernetes.io~empty-dir/cache/..data->..x",
		pod + "/volumes/kubernetes.io~empty-dir/cache/.vol_data.json.kvol-tmp=",
		pod + "/volumes/kubernetes.io~empty-dir/volume-subpaths/v/c/0=",
		pod + "/volumes/kubernetes.io~csi/v/mount/vol_data.json={}",
		pod + "/volumes/kubernetes.io~csi/v/mount/.vol_data.json.kvol-tmp={}",
		pod + "/volumes/kubernetes.io~csi/v/other.json={}",
		pod + "/volumes/kubernetes.io~csi/v/.other.kvol-tmp={}",
		pod + "/volumes/kubernetes.io~local-volume/v/vol_data.json={}",
		pod + "/volumes/kubernetes.io~local-volume/w->/mnt/disk",
		pod + "/volumes/stray=",
		pod + "/plugins/kubernetes.io~empty-dir/e/ready/ready=",
		pod + "/plugins/kubernetes.io~empty-dir/f/not-ready=",
		pod + "/plugins/kubernetes.io~empty-dir/g/ready->/etc/passwd",
		pod + "/other/etc-hosts=",
		pod + "/etc-hosts->/etc/hosts",
		pod + "/userns/x=",
		pod + "/containers/file=",
		pod + "/containers/c/dir/file=",
		pod + "/containers/c/link->/etc/passwd",
		pod + "/volume-subpaths/v/c/0=data",
		pod + "/volume-subpaths/v/c/1->/etc/passwd",
		pod + "/volume-subpaths/v/c/2/deeper=",
		pod + "/volumeDevices/kubernetes.io~csi/v=file",
		pod + "/volumeDevices/kubernetes.io~csi/empty=",
		csi + "driver/" + hash + "/globalmount/vol_data.json={}",
		csi + "volumeDevices/publish/p/52a4fa2e-7e24-44be-a5e5-06648a756e67=data",
		csi + "volumeDevices/staging/p/file=data",
		csi + "volumeDevices/staging/p/deeper/file=",
		"plugins/kubernetes.io/iscsi/iface-default/p-iqn.x-lun-0/deeper/iscsi.json={}",
		"plugins/kubernetes.io/rbd/mounts/p-image-i/rbd.json={}",
		"plugins/some.driver/state.db=",
		"plugins/some.driver/csi.sock=",
		secret + "..data/is-a-directory=",
		secret + "file=plain",
		secret + "..file=plain",
		secret + "out->/etc/passwd",
		secret + "up->../../..data2/x",
		secret + "..data_tmp->/etc",
		secret + "..2026_01_01_00_00_00.1/link->/etc/passwd",
		"config.yaml=", "cpu_manager_state={}", "vol_data.json={}", "pods/vol_data.json={}", "kvol=",
	}
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, data...)
		r := openLayout(t, dir, opt)
		before := testutil.Tree(t, dir)
		for _, entry := range data {
			name := entryName(entry)
			for _, what := range append([]Meta{""}, metas...) {
				wantErr(t, r.Unlink(name, what), api.ErrRefused, filepath.Join(dir, name))
			}
		}
		if after := testutil.Tree(t, dir); after != before {
			t.Errorf("changed:\n%s\nwas:\n%s", after, before)
		}
	})
}

// entryName is the name in an entry of plant.
func entryName(entry string) string {
	for i := range entry {
		if entry[i] == '=' || entry[i] == '-' && i+1 < len(entry) && entry[i+1] == '>' {
			return entry[:i]
		}
	}
	return entry
}

// TestUnlinkBound: a bind target is not unlinked through the mount on it,
// and the file that is bound there keeps its data.
func TestUnlinkBound(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		name := pod + "/volume-subpaths/v/c/0"
		plant(t, dir, name+"=", "source=")
		testutil.Bind(t, filepath.Join(dir, "source"), filepath.Join(dir, name), false)
		r := openLayout(t, dir, opt)
		wantErr(t, r.Unlink(name, BindTarget), ErrIsMount, filepath.Join(dir, name))
		if err := unix.Unmount(filepath.Join(dir, name), unix.UMOUNT_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.Unlink(name, BindTarget), nil, "")
		inode(t, filepath.Join(dir, "source"))
	})
}
