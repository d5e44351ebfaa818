#!/usr/bin/env bash
# Tests tools/check_rooms.py on small trees.
set -uo pipefail
script=$PWD/$1
failures=0

# tree FILE=INCLUDED[,INCLUDED]...: a new tree of headers.
tree() {
  rm -rf "$TEST_TMPDIR/tree"
  for file in "$@"; do
    local path=$TEST_TMPDIR/tree/${file%%=*}
    mkdir -p "$(dirname "$path")"
    tr ',' '\n' <<<"${file#*=}" | sed 's/.*/#include "&"/' >"$path"
  done
}
# says EXIT_CODE TEXT: what the script makes of the tree; TEXT is in its output.
says() {
  local output code
  output=$(python3 "$script" "$TEST_TMPDIR/tree")
  code=$?
  [ "$code" = "$1" ] && grep -qF -- "$2" <<<"$output" ||
    { echo "expected $1 and '$2', found $code and '$output'"; failures=1; }
}

tree core/a/x.h=vector core/b/y.h=core/a/x.h parallel/c/z.h=core/b/y.h,core/a/x.h tools/t.cc=parallel/c/z.h
says 0 ""
tree core/a/x.h=core/b/y.h core/b/y.h=core/c/z.h core/c/z.h=core/a/x.h
says 1 "core/c/z.h includes core/a/x.h"
tree core/a/x.h=models/m.h models/m.h=vector
says 1 "core/a may not include models: core/a/x.h includes models/m.h"
tree models/m.h=parallel/p/p.h parallel/p/p.h=vector
says 1 "models may not include parallel/p"
tree core/a/x.h=core/a/y.h core/a/y.h=core/a/x.h
says 0 ""

exit "$failures"
