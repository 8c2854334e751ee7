#!/usr/bin/env bash
# Makes in bin/release what packages need and the tree does not have: manual pages
# with a date, the licences of what is linked into kvol, Debian's changelog, and the
# program that writes bills of materials. goreleaser runs it.
#
#   scripts/release-files.sh VERSION DATE
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 date=$2
out=bin/release
rm -rf "$out"
mkdir -p "$out/man"

go build -buildvcs=false -o "$out/sbom" ./test/cmd/sbom

# A manual page has the date of what it is of. In the tree it has none: there the same
# text has to give the same page, and nobody knows the date of the next commit.
for page in docs/man/*.8; do
	sed "s/^\(\.TH \"[^\"]*\" \"8\"\) \"\" /\1 \"${date%%T*}\" /" "$page" >"$out/man/${page##*/}"
	gzip -9nk "$out/man/${page##*/}"
done

declare -A texts=() # by digest: which modules have this licence

# licences NAME DIR notes the licence files of a module.
licences() {
	local file digest found=
	for file in "$2"/LICENSE* "$2"/LICENCE* "$2"/COPYING* "$2"/NOTICE* "$2"/PATENTS*; do
		if [[ -f $file ]]; then
			found=yes
			digest=$(sha256sum <"$file")
			texts[${digest%% *}]+="  $1, ${file##*/}"$'\n'
			cp --no-preserve=mode "$file" "$out/texts/${digest%% *}"
		fi
	done
	if [[ -z $found ]]; then
		echo "$0: $1 has no licence file" >&2
		return 1
	fi
}

mkdir "$out/texts"
modules=$(go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{end}}{{end}}' ./cmd/kvol | sort -u)
licences "Go standard library $(go env GOVERSION)" "$(go env GOROOT)"
while IFS=$'\t' read -r name dir; do
	licences "$name" "$dir"
done <<<"$modules"

{
	echo "kvol, https://github.com/kvol/kvol"
	echo
	if [[ -f LICENSE ]]; then
		cat LICENSE
	else
		echo "Its sources state no licence."
	fi
	echo
	echo "The program has in it the following, under their own licences."
	for digest in $(printf '%s\n' "${!texts[@]}" | sort); do
		printf '\n----\n\n%s\n' "${texts[$digest]}"
		cat "$out/texts/$digest"
	done
} >"$out/copyright"

# Debian sorts "~" before everything: 1.0.0~rc1 is older than 1.0.0.
{
	echo "kvol (${version/-/\~}) unstable; urgency=medium"
	echo
	echo "  * See https://github.com/kvol/kvol/releases."
	echo
	echo " -- The kvol authors <kvol@users.noreply.github.com>  $(date -u -R -d "$date")"
} | gzip -9n >"$out/changelog.gz"
