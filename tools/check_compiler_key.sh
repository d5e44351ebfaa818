#!/usr/bin/env bash
# Checks that a disk cache that was kept over an update of the compiler is not used, and
# is after the update is taken back (third_party/compiler): with compilers of its own, which
# have a byte more after the "update". They are GCC's cc1plus, and a script that runs Clang.
#   tools/check_compiler_key.sh
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
startup=(--output_base="$work/output" --max_idle_secs=60)
finish() {
  bazel "${startup[@]}" shutdown >/dev/null 2>&1 || true
  chmod -R u+w "$work" || true
  rm -rf "$work" || true
}
trap finish EXIT

mkdir "$work/compiler"
cp "$(gcc -print-prog-name=cc1plus)" "$work/compiler/"
printf '#!/bin/sh\nexec %s -B%s/ "$@"\n' "$(command -v gcc)" "$work/compiler" >"$work/gcc"
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v clang)" >"$work/clang"
chmod +x "$work/gcc" "$work/clang"

# A precompiled header, what is compiled with it, and what is compiled without.
targets=(//core/base:environment @com_google_absl//absl/base:log_severity)

# builds WHAT: from nothing but the disk cache; prints how many actions came from it, and how many ran.
builds() {
  # The checkout's bazel-bin and the like stay as they are.
  bazel "${startup[@]}" clean --symlink_prefix=/
  bazel "${startup[@]}" build --config=ci --symlink_prefix=/ "--repo_env=CC=$work/$compiler" "--disk_cache=$work/$compiler-cache" "${targets[@]}" \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  local line
  line=$(grep -o 'INFO: [0-9]* process.*' "$work/log" | tail -1)
  cached=$(sed -nE 's/.* ([0-9]+) (remote|disk) cache hit.*/\1/p' <<<"$line")
  cached=${cached:-0}
  run=$({ grep -oE '[0-9]+ (local|[a-z]+-sandbox|worker)' <<<"$line" || true; } | awk '{sum += $1} END {print sum + 0}')
  echo "$compiler, $1: $cached actions from the cache, $run run"
}
expect() { [ "$@" ] || { echo "check_compiler_key: that is wrong ($*)"; exit 1; }; }

# check COMPILER FILE: which of its files is updated.
check() {
  compiler=$1
  local file=$2
  builds "an empty cache"
  expect "$cached" -eq 0
  expect "$run" -ge 4
  all=$run
  builds "a full cache"
  expect "$cached" -eq "$all"
  echo >>"$file"
  builds "after an update of the compiler"
  expect "$cached" -eq 0
  expect "$run" -eq "$all"
  truncate --size=-1 "$file"
  builds "with the compiler of before"
  expect "$cached" -eq "$all"
}
check gcc "$work/compiler/cc1plus"
check clang "$work/clang"
