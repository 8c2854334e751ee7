#!/bin/sh
# Runs when a package of kvol was removed. What kvol keeps goes with the last of
# it: when dpkg purges, when rpm or apk removes. It goes by name, so what somebody
# else put there stays, and the directory with it.
set -e

case "${1:-}" in
purge) ;;      # dpkg
0) ;;          # rpm: no version stays
*.*) ;;        # apk says the version that went, and not on an upgrade
*) exit 0 ;;
esac

for dir in /var/lib/kvol /run/kvol; do
	if [ -d "$dir" ] && [ ! -L "$dir" ]; then
		rm -f "$dir"/journal-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl "$dir"/root-*.lock "$dir"/volume-*.lock "$dir"/device-*.lock "$dir"/stuck-probes.json
		rmdir "$dir" || echo "kvol: $dir is left: others have put something there" >&2
	fi
done
