#!/usr/bin/env bash
# Runs the tests under each sanitizer and prints a table. What cannot run under
# one is tagged noasan, noubsan or notsan in its BUILD file, with the reason.
#   tools/check_sanitizers.sh                    every test (//tests:full)
#   tools/check_sanitizers.sh //tests/core/...   some
#   tools/check_sanitizers.sh --short            those of .ci/nightly: readers of files, and what threads share
# AddressSanitizer and UndefinedBehaviorSanitizer share a build. Each build is of
# everything anew: the first run takes hours. Needs tools/setup.sh --sanitizers.
set -uo pipefail
[ -e "$(clang -print-file-name=libclang_rt.tsan-x86_64.a 2>/dev/null)" ] ||
  { echo "check_sanitizers: Clang's run-time libraries are not here: tools/setup.sh --sanitizers installs them" >&2; exit 2; }
cd "$(dirname "$0")/.."
case ${1:-} in
  "") targets=(//tests:full) ;;
  --short)
    targets=(
      //tests/core/checkpoint/...
      //tests/core/comm/...
      //tests/core/launch:launch_tests
      //tests/core/pytorch_file/...
      //tests/core/shm/...
      //tests/core/sim/streams/...
      //tests/fuzz:full
      //tests/parallel/channel/...
      //tests/parallel/ddp:ddp_tests
    )
    ;;
  -*) echo "check_sanitizers: unknown argument '$1'; known: --short, and labels" >&2; exit 2 ;;
  *) targets=("$@") ;;
esac

. .ci/common
table=$(printf '%-11s %7s %7s   %s' sanitizers passed failed 'excluded by tag')
code=0
for config in asan_ubsan tsan; do
  passed=0 failed=0
  suite --config="$config" -- "${targets[@]}"
  excluded=$(bazel query --noshow_progress "attr(tags, '\\bno(${config/_/|})\\b', tests(set(${targets[*]})))" 2>/dev/null)
  table+=$(printf '\n%-11s %7s %7s   %s' "${config/_/, }" "$passed" "$failed" "${excluded//$'\n'/ }")
  [ "$failed" -eq 0 ] || code=1
done
echo "$table"
exit "$code"
