# shellcheck shell=bash disable=SC2154 # what is not set here is demo.sh's
# The second half of the demo: volumes of a CSI driver, and what is left of them when
# things go wrong. demo.sh reads it in.

driver=csi.demo.example

start_driver() {
	mkdir -p "$dir/csi"
	: >"$dir/csi.out"
	"$csidriver" -root "$root" -driver "$driver" -dir "$dir/csi" >"$dir/csi.out" &
	driver_pid=$!
	daemons+=("$driver_pid")
	until [[ -s $dir/csi.out ]]; do sleep 0.01; done
}

# csi_pv describes a volume of the driver.
csi_pv() {
	cat >"$dir/$1.yaml" <<YAML
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: $driver}
spec: {attachRequired: false}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: $2
  csi: {driver: $driver, volumeHandle: handle-of-$1${3:+, fsType: $3}}
YAML
}

# csi_target is where a pod has a volume.
csi_target() { echo "$root/pods/$1/volumes/kubernetes.io~csi/$2/mount"; }

say "The dead FUSE mounts of before: their driver is long gone, so the node's half goes alone"
for pid in "${daemons[@]}"; do end "$pid"; done
daemons=()
for name in fuse-hangs fuse-died; do
	run 0 unpublish "$name" --pod-uid "$pod1" --without-driver
done

say "A CSI driver: a gRPC server of its own, which registers as with a kubelet"
start_driver
csi_pv pvc-shop Filesystem ext4
cat "$dir/pvc-shop.yaml"

say "Its volume goes up as the kubelet does it: staged on the node, published into the pod"
run 0 setup -f "$dir/pvc-shop.yaml" --pod-uid "$pod1"
echo "carts of today" >"$(csi_target "$pod1" pvc-shop)/carts"
run 0 inspect pvc-shop
say "and down again; the driver is called first, the files go last"
run 0 teardown pvc-shop --pod-uid "$pod1"

say "A raw block volume: the device in the pod, held open as the kubelet holds it"
csi_pv pvc-raw Block
run 0 setup -f "$dir/pvc-raw.yaml" --pod-uid "$pod1"
run 0 list-mounts
[[ -b $(readlink -f "$root/pods/$pod1/volumeDevices/kubernetes.io~csi/pvc-raw") ]] || fail "the pod has no device"
run 0 teardown pvc-raw --pod-uid "$pod1"

say "Five pods with a volume each. One lives on; four go, and leave something behind"
live=1111aaaa-0000-4000-8000-000000000001
killed=2222bbbb-0000-4000-8000-000000000002
driverless=3333cccc-0000-4000-8000-000000000003
power=4444dddd-0000-4000-8000-000000000004
removed=5555eeee-0000-4000-8000-000000000005
for of in "$live live" "$killed killed" "$driverless driverless" "$power power" "$removed removed"; do
	read -r uid name <<<"$of"
	csi_pv "pvc-$name" Filesystem ext4
	"$kvol" setup -q -f "$dir/pvc-$name.yaml" --pod-uid "$uid"
	echo "data of $name" >"$(csi_target "$uid" "pvc-$name")/data"
	mkdir -p "$root/pods/$uid/plugins/kubernetes.io~empty-dir/wrapped_token" "$root/pods/$uid/containers/web"
	touch "$root/pods/$uid/etc-hosts" "$root/pods/$uid/plugins/kubernetes.io~empty-dir/wrapped_token/ready"
done

echo "1. kvol is killed in the middle of a teardown"
until [[ $("$kvol" history --limit 1) == *interrupted* ]]; do
	[[ -d $(csi_target "$killed" pvc-killed) ]] || "$kvol" setup -q -f "$dir/pvc-killed.yaml" --pod-uid "$killed"
	"$kvol" teardown pvc-killed --pod-uid "$killed" >/dev/null 2>&1 &
	victim=$!
	target=$(csi_target "$killed" pvc-killed)
	while [[ $(</proc/self/mountinfo) == *" $target "* ]]; do :; done
	end "$victim"
done

echo "2. the pod of a volume is gone, and its driver was killed before it was asked"
end "$driver_pid"

echo "3. the power goes: no mounts, and vol_data.json has no content"
for at in $(findmnt -rno TARGET | grep -F pvc-power) \
	"$root/plugins/kubernetes.io/csi/$driver/$(printf %s handle-of-pvc-power | sha256sum | cut -d' ' -f1)/globalmount"; do
	umount "$at"
done
: >"$root/pods/$power/volumes/kubernetes.io~csi/pvc-power/vol_data.json"

echo "4. somebody removed a pod's directory by hand; its volume is staged still"
umount "$(csi_target "$removed" pvc-removed)"
rm -r "${root:?}/pods/$removed"

say "Who lives here? No kubelet and no runtime in this demo, so the list is the operator's"
echo "$live" >"$dir/pods.txt"
for uid in "$pod1" "$pod2"; do [[ ! -d $root/pods/$uid ]] || echo "$uid" >>"$dir/pods.txt"; done
gc=(gc-orphans --pods-from "file:$dir/pods.txt" --min-age 0)

say "The plan: what can go and why, what stays and why; nothing is changed"
before=$(find "$root" | sort | sha256sum)
run 0 "${gc[@]}"
[[ $(find "$root" | sort | sha256sum) == "$before" ]] || fail "a plan changed something"

say "Carried out while the driver is away, what needs it stays, and that is told"
run 3 "${gc[@]}" --apply --keep-going

say "The driver is back: now all of it goes"
start_driver
run 0 "${gc[@]}" --apply
run 0 "${gc[@]}"
for uid in "$killed" "$driverless" "$power" "$removed"; do
	[[ ! -e $root/pods/$uid ]] || fail "pod $uid was left behind"
done
[[ $(<"$(csi_target "$live" pvc-live)/data") == "data of live" ]] || fail "the live pod lost its volume"
run 0 list-mounts

say "Not a byte of any volume is lost: they come up again as they were"
for name in killed driverless power removed; do
	"$kvol" setup -q -f "$dir/pvc-$name.yaml" --pod-uid "$pod1"
	[[ $(<"$(csi_target "$pod1" "pvc-$name")/data") == "data of $name" ]] || fail "the data of $name is not what it was"
	echo "pvc-$name: $(<"$(csi_target "$pod1" "pvc-$name")/data")"
	"$kvol" teardown -q "pvc-$name" --pod-uid "$pod1"
done
run 0 teardown pvc-live --pod-uid "$live"
