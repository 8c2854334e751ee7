#!/bin/bash
# Uses an installed kvol, in the root of a throw-away Debian and in a mount
# namespace of its own.
#
#   use.sh VERSION POD
set -euxo pipefail
version=$1 pod=$2
uid=0a1b2c3d-0000-4000-8000-00000000000a

[[ $(kvol version) == "kvol $version" ]]
[[ -x $(type -P kvol) && $(type -P kvol) == /usr/bin/kvol ]]

mount -t tmpfs kubelet /var/lib/kubelet
mkdir /var/lib/kubelet/pods /var/lib/kubelet/plugins
[[ -z $(kvol list-mounts -o name) ]]
kvol setup -f "$pod"
[[ $(kvol list-mounts -o name) == *"/pods/$uid/volumes/kubernetes.io~empty-dir/scratch" ]]
mountpoint "/var/lib/kubelet/pods/$uid/volumes/kubernetes.io~empty-dir/scratch"
kvol teardown scratch --pod-uid "$uid"
[[ -z $(kvol list-mounts -o name) ]]
umount /var/lib/kubelet
[[ -s /var/lib/kvol/journal-000001.jsonl && -n $(ls /run/kvol) ]]

# As bash does at the first TAB after "kvol": nothing of it is loaded before.
bash --norc -euc '
	set +u # bash-completion is not written for it
	. /usr/share/bash-completion/bash_completion
	! complete -p kvol
	_completion_loader kvol || [[ $? -eq 124 ]]
	read -r _ _ _ _ function _ < <(complete -p kvol | sed "s/.*-F/- - - - /")
	COMP_WORDS=(kvol list-m) COMP_CWORD=1 COMP_LINE="kvol list-m" COMP_POINT=11 COMP_TYPE=9
	"$function" kvol list-m kvol || : # it says that no TAB was pressed
	[[ ${COMPREPLY[*]} == list-mounts* ]]
'

for page in kvol kvol-setup kvol-list-mounts; do
	[[ $(man -w "$page") == /usr/share/man/man8/$page.8.gz ]]
	MANPAGER=cat MANWIDTH=80 man "$page" | grep NAME
	# What groff has to complain about it writes to standard error.
	[[ -z $(LC_ALL=C.UTF-8 man --warnings -l -Tutf8 -Z "$(man -w "$page")" 2>&1 >/dev/null) ]]
done
