#!/usr/bin/env bash
# Installs the programs that kvol's tests, linters, demo or release run and that are
# missing here, and says which.
#
#   scripts/deps.sh test|lint|demo|release
#
# It installs on Debian and Ubuntu, as root. Elsewhere it names what is missing:
# tests then skip what needs it, and neither the demo nor a release can be made.
set -euo pipefail

# Each line: a program, the Debian package that has it, and what needs it.
tools='
findmnt     util-linux      test
fuser       psmisc          test
losetup     mount           test demo
mount       mount           test demo
blkid       util-linux      test demo
partx       util-linux      test
unshare     util-linux      test demo release
nsenter     util-linux      test demo
setpriv     util-linux      test
mkfs.ext4   e2fsprogs       test demo
fsck.ext4   e2fsprogs       test demo
debugfs     e2fsprogs       test
mkfs.xfs    xfsprogs        test
mkfs.btrfs  btrfs-progs     test
cryptsetup  cryptsetup-bin  test
pvcreate    lvm2            test
dmsetup     dmsetup         test
sgdisk      gdisk           test
sfdisk      fdisk           test
strace      strace          test
ldd         libc-bin        test
containerd  containerd      test
ctr         containerd      test
runc        runc            test
shellcheck  shellcheck      test lint
tmux        tmux            test
zsh         zsh             test
fish        fish            test
dh_bash-completion bash-completion test
mandoc      mandoc          test release
mmdebstrap  mmdebstrap      release
lintian     lintian         release
rpm         rpm             release
qemu-aarch64-static qemu-user-static release
'

what=${1:-}
case $what in
test | lint | demo | release) ;;
*)
	echo "usage: $0 test|lint|demo|release" >&2
	exit 2
	;;
esac

PATH=$PATH:/usr/sbin:/sbin
missing=()
packages=()
while read -r tool package needed; do
	if [[ " $needed " == *" $what "* ]] && ! command -v "$tool" >/dev/null; then
		missing+=("$tool")
		packages+=("$package")
	fi
done < <(grep . <<<"$tools")

if ((${#missing[@]} == 0)); then
	exit 0
fi
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "$0: missing here: ${missing[*]} (Debian packages: ${packages[*]}); install them as root" >&2
	if [[ $what == demo || $what == release || -n ${CI:-} ]]; then
		exit 1
	fi
	exit 0
fi

echo "$0: installing ${packages[*]} (for ${missing[*]})"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
