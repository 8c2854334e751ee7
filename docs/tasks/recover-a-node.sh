#!/usr/bin/env bash
# Recovers a node on which volumes are broken, as far as it can be done without
# losing anything, and says at the end what it could not do.
#
#   recover-a-node.sh [--without-driver] [--unmount-others]
#
# --without-driver takes CSI volumes down also where their driver is not there, and
# --unmount-others dead mounts that are no volumes by their place: a daemon that lives
# may look dead, as one whose server is away, and nobody mounts them again. kvol's
# settings are read from the environment: KVOL_PODS_FROM=file:pods.json is your list of
# the pods that live here, for a node where two sources cannot prove which are gone.
#
# It decides by kvol's exit codes alone, takes every name from "-o name -0", and may be
# run again: what is done already is done. It ends with 0 when all is well, with 3 when
# something stays, with 1 when something failed, and with 130 when it was interrupted.
set -uo pipefail

driver=()
others=false
for word; do
	case $word in
	--without-driver) driver=(--without-driver) ;;
	--unmount-others) others=true ;;
	*)
		echo "usage: $0 [--without-driver] [--unmount-others]" >&2
		exit 2
		;;
	esac
done

names=$(mktemp) || exit 1
trap 'rm -f -- "$names"' EXIT
trap 'exit 130' INT TERM

left=()   # what stays, with the reason in words
failed=() # what went wrong

# note puts down what a command on something ended with.
note() {
	local code=$1 what=$2
	case $code in
	0 | 5) ;; # done, done before, or gone meanwhile
	3) left+=("a part stays: $what") ;;
	4) left+=("refused, or not proven: $what") ;;
	6) left+=("kvol has no way: $what") ;;
	7) left+=("a driver or tool is missing: $what") ;;
	8) left+=("no answer in time, not known: $what") ;;
	9) left+=("in use: $what") ;;
	10) left+=("another kvol works on it: $what") ;;
	32) left+=("umount could not: $what") ;;
	130) exit 130 ;;
	*) failed+=("failed ($code): $what") ;;
	esac
}

# shown is a name on one line, whatever is in it.
shown() { printf '%q' "$1"; }

# list puts the names that a listing of kvol gives into the array found.
list() {
	local code=0
	found=()
	kvol "$@" -o name -0 >"$names" || code=$?
	# Of a list that failed, as with a full disk, a name may be cut short, and then it is
	# that of something else.
	if ((code == 0)); then mapfile -d '' -t found <"$names" || code=1; fi
	note "$code" "kvol $*"
}

# each runs a command for each of the names that were found, with the name as its
# last word; a second time where it was not known how it ended, or another kvol was
# there first.
each() {
	local name code
	for name in "${found[@]}"; do
		for _ in once again; do
			code=0
			"$@" "$name" >/dev/null || code=$?
			((code == 8 || code == 10)) || break
		done
		note "$code" "$(shown "$name")"
	done
}

# stays puts down what a listing gives, but what has been put down as of gone pods.
stays() {
	local what=$1 name
	shift
	list "$@"
	for name in "${found[@]}"; do
		[[ -n ${gone[$name]-} ]] || left+=("$what: $(shown "$name")")
	done
}

echo "== What pods that are gone left behind =="
code=0
kvol gc-orphans --apply --keep-going "${driver[@]}" -o name >/dev/null || code=$?
# What stays is listed at the end.
((code == 3)) || note "$code" "what pods that are gone left behind"

echo "== Metadata of CSI volumes that cannot be read =="
list list-mounts --plugin kubernetes.io/csi --kind podVolume,globalMount,podDevice
each kvol recover --apply

echo "== Mounts whose server or daemon is gone =="
# From the pods down to the device: a global mount is busy while a pod has it. A server
# that is only away looks the same, so of pods only what is proven to be of none.
list list-mounts --state disconnected --kind podVolume --orphans
each kvol unpublish "${driver[@]}"
list list-mounts --state disconnected --kind globalMount
each kvol unmount-device "${driver[@]}"
# These are no volumes by their place. Never lazily, so that one that is in use stays.
# umount works where this script does, and kvol where the kubelet is, so kvol is asked
# what is dead here. In a pod's directory it is the pod's, as what a sidecar mounted: if
# that pod is gone, gc-orphans has done it.
if $others; then
	list list-mounts --mount-namespace $$ --state disconnected --kind other
	dead=("${found[@]}")
	found=()
	for name in "${dead[@]}"; do
		[[ $name == */pods/* ]] || found+=("$name")
	done
	each umount -c --
fi

echo "== What stays =="
code=0
said=$(kvol gc-orphans --exit-code -o name 2>&1 >/dev/null) || code=$?
# What kvol says of orphans is to clean them up, which was tried above.
if ((code == 11)); then
	left+=("not all that pods that are gone left behind: see kvol gc-orphans -o wide")
else
	[[ -z $said ]] || printf '%s\n' "$said" >&2
	note "$code" "which pods are gone"
fi
declare -A gone=()
list list-mounts --orphans
for name in "${found[@]}"; do
	gone[$name]=1
	left+=("of a pod that is gone: $(shown "$name")")
done
# Of these nobody says that the pod lives, and that they are still here says that nothing
# proves it gone either.
list list-mounts --kind podVolume,podDevice --owner unknown
for name in "${found[@]}"; do left+=("whether its pod lives is not known: $(shown "$name")"); done
stays "not well" list-mounts --state disconnected,stale,unresponsive,denied,readonly,deleted,unmounted,unknown
stays "mounted more than once" list-mounts --duplicates

((${#failed[@]} == 0)) || printf '%s\n' "${failed[@]}" | sort -u
((${#left[@]} == 0)) || printf '%s\n' "${left[@]}" | sort -u
if ((${#failed[@]} > 0)); then exit 1; fi
if ((${#left[@]} > 0)); then exit 3; fi
echo "nothing"
