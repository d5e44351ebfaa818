#!/usr/bin/env bash
# Tests tools/prune_cache.py on small caches.
set -uo pipefail
script=$PWD/$1
failures=0
cache=$TEST_TMPDIR/cache

# file PATH KIB USED: a file of the cache that was last used USED hours ago.
file() {
  mkdir -p "$(dirname "$cache/$1")"
  head -c "$(($2 << 10))" /dev/zero >"$cache/$1"
  touch -d "$3 hours ago" "$cache/$1"
}
# prune GIB TEXT LEFT...: what it prints, and the files that are there then.
prune() {
  local output expected="${*:3}" left
  output=$(python3 "$script" "$cache" "$1" 2>&1)
  left=$(cd "$cache" && find . -type f -printf '%P\n' | sort | paste -sd ' ')
  grep -qF -- "$2" <<<"$output" || { echo "expected '$2', found '$output'"; failures=1; }
  [ "$left" = "$expected" ] || { echo "expected '$expected', found '$left'"; failures=1; }
}

file ac/00/first 4 1
file cas/00/old 512 3
file cas/01/older 512 4
file cas/01/new 512 2
# 1,540 KiB are 0.00147 GiB.
prune 1 "4 files (at most 1 GiB; removed nothing)" ac/00/first cas/00/old cas/01/new cas/01/older
prune 0.00147 "removed nothing" ac/00/first cas/00/old cas/01/new cas/01/older
prune 0.0012 "3 files (at most 0.0012 GiB; removed 1 files" ac/00/first cas/00/old cas/01/new
# Reading counts as using.
touch -a "$cache/cas/00/old"
prune 0.0006 "removed 1 files" ac/00/first cas/00/old
prune 0 "removed 2 files"

# An empty one, one that is not there, and a folder that is somebody's.
prune 1 "0 files"
rm -rf "$cache"
mkdir "$cache"
prune 1 "0 files"
file ac/00/first 4 1
file precious 4 1
prune 0 "is not a disk cache of Bazel's" ac/00/first precious

exit "$failures"
