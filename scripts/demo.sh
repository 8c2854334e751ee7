#!/usr/bin/env bash
# kvol's main job, for real: a disk becomes a local PersistentVolume, goes up into
# two pods and down again; a CSI driver's volumes do the same; what pods that are gone
# left is cleaned up; and nothing that happens on the way loses a byte.
#
# It works in a scratch root inside a mount namespace of its own, on a loop device
# over a file, and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $EUID -ne 0 ]]; then
	echo "demo: run it as root: it mounts for real (in a mount namespace of its own)" >&2
	exit 1
fi
if [[ ${1:-} != inside ]]; then
	go build -o bin/ ./test/cmd/fusefs ./test/cmd/csidriver
	exec unshare -m --propagation private "$0" inside
fi

kvol=$PWD/bin/kvol
fusefs=$PWD/bin/fusefs
csidriver=$PWD/bin/csidriver
# A tmpfs that only this namespace sees: it goes with it, and all that is in it.
dir=/mnt
mount -t tmpfs demo "$dir"
root=$dir/kubelet
export KVOL_ROOT_DIR=$root KVOL_STATE_DIR=$dir/state KVOL_RUN_DIR=$dir/run
daemons=()

# end kills a process that the demo started, and lets bash say nothing of it.
end() {
	{
		kill -KILL "$1"
		wait "$1"
	} 2>/dev/null || :
}

cleanup() {
	trap - EXIT
	for pid in "${daemons[@]}"; do end "$pid"; done
	[[ -z ${disk:-} ]] || losetup -d "$disk"
	# The driver's volumes: loop devices over files of this namespace alone.
	umount -R "$root" 2>/dev/null || :
	losetup -nO NAME,BACK-FILE | while read -r name file; do
		[[ $file != "$dir"/* ]] || losetup -d "$name"
	done
}
trap cleanup EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }

fail() {
	echo "demo: $*" >&2
	exit 1
}

# run shows a command and what it says, which is in $said, and wants its exit code.
run() {
	local want=$1 code=0
	shift
	printf '$ kvol %s\n' "$*"
	said=$("$kvol" "$@" 2>&1) || code=$?
	printf '%s\n' "$said"
	[[ $code -eq $want ]] || fail "exit code $code where $want was expected"
	[[ $code -eq 0 ]] || printf '(exit code %s, as it should be)\n' "$code"
}

pod1=3f2b8c1e-7d44-4a56-9b0e-5f1d2c3a4b5c
pod2=9a8b7c6d-5e4f-4321-8765-0fedcba98765
web=$root/pods/$pod1/volumes/kubernetes.io~local-volume/pv-data
reports=$root/pods/$pod2/volumes/kubernetes.io~local-volume/pv-data
mkdir -p "$root/pods" "$root/plugins"

say "A new disk of 64 MiB, blank, and a PersistentVolume that names it"
truncate -s 64M "$dir/disk.img"
disk=$(losetup -f --show "$dir/disk.img")
cat >"$dir/pv.yaml" <<YAML
apiVersion: v1
kind: PersistentVolume
metadata:
  name: pv-data
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  local: {path: $disk}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [this-node]}]
YAML
cat >"$dir/reports.yaml" <<YAML
apiVersion: v1
kind: Pod
metadata: {name: reports, namespace: shop, uid: $pod2}
spec:
  containers: [{name: c, image: reports}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data, readOnly: true}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteOnce], volumeName: pv-data, resources: {requests: {storage: 64Mi}}}
---
$(cat "$dir/pv.yaml")
YAML
cat "$dir/pv.yaml"

say "kvol does not format what nobody asked it to format"
run 4 setup -f "$dir/pv.yaml" --pod-uid "$pod1"

say "Asked to, it says first what it would do"
run 0 setup -f "$dir/pv.yaml" --pod-uid "$pod1" --format --dry-run

say "and does it: formatted, mounted once, published into the pod"
run 0 setup -f "$dir/pv.yaml" --pod-uid "$pod1" --format
echo "the orders of ten years" >"$web/orders"
sum=$(sha256sum <"$web/orders")

say "A second pod gets the same volume, read-only"
run 0 setup -f "$dir/reports.yaml"
if touch "$reports/x" 2>/dev/null; then
	fail "the read-only mount can be written to"
fi
echo "(touch in the second pod: Read-only file system)"

say "Beside it: a FUSE mount whose daemon hangs, and one whose daemon died"
for mode in hangs died; do
	target=$root/pods/$pod1/volumes/kubernetes.io~csi/fuse-$mode/mount
	mkdir -p "$target"
	KVOL_TEST_FUSE="alive 0s $target" "$fusefs" >"$dir/fuse-$mode" &
	pid=$!
	daemons+=("$pid")
	until [[ -s $dir/fuse-$mode ]]; do sleep 0.01; done
	[[ $(<"$dir/fuse-$mode") == ready ]] || { cat "$dir/fuse-$mode" >&2; exit 1; }
	case $mode in
	hangs) kill -STOP "$pid" ;;
	died) end "$pid" ;;
	esac
done

say "The whole node, as it is; df and ls would hang here"
run 0 list-mounts --probe-timeout 500ms
[[ $said == *unresponsive*fuse-hangs* && $said == *disconnected*fuse-died* ]] || fail "the two are not told apart"

say "The volume is in use, so it stays where it is"
run 9 unmount-device pv-data

say "kvol is killed (SIGKILL) in the middle of taking the volume from the first pod"
until [[ $("$kvol" history --limit 1) == *interrupted* ]]; do
	# It was too fast, and the volume is down: once more.
	[[ -d $web ]] || "$kvol" setup -q -f "$dir/pv.yaml" --pod-uid "$pod1"
	"$kvol" teardown pv-data --pod-uid "$pod1" >/dev/null 2>&1 &
	victim=$!
	# shell builtins only, so that the moment is not missed
	while [[ $(</proc/self/mountinfo) == *" $web "* ]]; do :; done
	end "$victim"
done
run 0 history --limit 1

say "The same command finishes the work; the other pod keeps the volume"
run 0 teardown pv-data --pod-uid "$pod1"

say "The last pod goes: unmounted everywhere, and proven free"
run 0 teardown pv-data --pod-uid "$pod2"
run 0 teardown pv-data --pod-uid "$pod2"

say "The data is as it was"
run 0 setup -f "$dir/pv.yaml" --pod-uid "$pod1"
[[ $(sha256sum <"$web/orders") == "$sum" ]] || fail "the data is not what it was"
cat "$web/orders"
run 0 teardown pv-data --pod-uid "$pod1"

# shellcheck source=scripts/demo-csi.sh
source scripts/demo-csi.sh

say "and all of it is in the history"
run 0 history

say "Done: nothing was lost, nothing hung, nothing is left behind"
