#!/usr/bin/env bash
# Brings one file of Debian's package registry into FOLDER and prints its path.
#   debian.sh source|binary NAME VERSION PATTERN FOLDER
# Needs no root: apt runs on a state of its own, with the machine's Debian
# package sources. When VERSION has been superseded, takes the version that is
# there and says so on stderr: the caller's sha256 decides whether it will do.
# TANDEM_STRICT=1 makes that an error.
set -euo pipefail
mode=$1 name=$2 version=$3 pattern=$4 folder=$5

fail() { echo "$*" >&2; exit 1; }

command -v apt-get >/dev/null || fail "this machine has no apt-get"
rm -rf "$folder"
mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/parts" "$folder/files"
: >"$folder/state/status"

# The machine's own lists, Debian's entries only (others may not resolve), for
# binary and source packages both.
shopt -s nullglob
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -f "$list" ] || continue
  awk '$1 ~ /^deb/ && /debian/ { sub(/^deb(-src)?/, "deb"); print; sub(/^deb/, "deb-src"); print }' \
    "$list" >>"$folder/parts/machine.list"
done
for list in /etc/apt/sources.list.d/*.sources; do
  grep -q 'debian' "$list" || continue
  sed 's/^Types:.*/Types: deb deb-src/' "$list" >"$folder/parts/$(basename "$list")"
done

[ -n "$(ls "$folder/parts")" ] || fail "no package source in /etc/apt names Debian"

apt=(-o Dir::State="$folder/state" -o Dir::State::status="$folder/state/status"
  -o Dir::Cache="$folder/cache" -o Dir::Etc::sourcelist=/dev/null
  -o Dir::Etc::sourceparts="$folder/parts" -o APT::Sandbox::User="$(id -un)"
  -o Acquire::Retries=3 -o Acquire::Languages=none -qq)
log=$folder/log

cd "$folder/files"
apt-get "${apt[@]}" update >"$log" 2>&1 || fail "apt-get update: $(tail -n 2 "$log")"
download() {
  case $mode in
    source) apt-get "${apt[@]}" source --tar-only --download-only "$1" ;;
    binary) apt-get "${apt[@]}" download "$1" ;;
  esac >"$log" 2>&1
}
if ! download "$name=$version"; then
  [ "${TANDEM_STRICT:-}" != 1 ] || fail "superseded, and TANDEM_STRICT=1 asks for this version: $(tail -n 2 "$log")"
  download "$name" || fail "apt-get: $(tail -n 2 "$log")"
  echo "Debian has superseded $name $version; took the version that is there" >&2
fi
files=($pattern)
[ "${#files[@]}" -eq 1 ] || fail "expected one file $pattern, found: $(ls)"
mkdir "$folder/brought"
mv "${files[0]}" "$folder/brought/"
echo "$folder/brought/${files[0]}"
