#!/usr/bin/env bash
# Runs the tests under each sanitizer and prints a table. What cannot run under
# one is tagged noasan, noubsan or notsan in its BUILD file, with the reason.
#   tools/check_sanitizers.sh                    every test
#   tools/check_sanitizers.sh //tests/core/...   some
# AddressSanitizer and UndefinedBehaviorSanitizer share a build. Each build is of
# everything anew: the first run takes hours. Needs clang: tools/setup.sh --clang.
set -uo pipefail
command -v clang >/dev/null || { echo "check_sanitizers: clang is not here: tools/setup.sh --clang installs it" >&2; exit 2; }
cd "$(dirname "$0")/.."
targets=("$@")
[ $# -gt 0 ] || targets=(//tests/...)

events=$(mktemp)
trap 'rm -f "$events"' EXIT

table=$(printf '%-11s %7s %7s   %s' sanitizers passed failed 'excluded by tag')
code=0
for config in asan_ubsan tsan; do
  bazel test --config=ci --config="$config" "--build_event_json_file=$events" -- "${targets[@]}"
  read -r passed failed < <(python3 tools/count_results.py "$events" "$?")
  excluded=$(bazel query --noshow_progress "attr(tags, '\\bno(${config/_/|})\\b', tests(set(${targets[*]})))" 2>/dev/null)
  table+=$(printf '\n%-11s %7s %7s   %s' "${config/_/, }" "$passed" "$failed" "${excluded//$'\n'/ }")
  [ "$failed" -eq 0 ] || code=1
done
echo "$table"
exit "$code"
