#!/usr/bin/env bash
# Runs the tests as on other processors and prints a table. LibTorch, oneDNN and
# MKL choose their kernels by what the processor can do, and can be told by
# environment to do with less.
#   tools/check_processors.sh                              every test (//tests:full), every setting
#   tools/check_processors.sh //tests/models/...           some tests
#   tools/check_processors.sh MKL_CBWR=AVX2,ATEN_CPU_CAPABILITY=avx2 //tests/...
#                                                          one setting: NAME=VALUE,...
# MKL_ENABLE_INSTRUCTIONS is heeded on Intel's processors alone. Nothing is built
# anew, but every test runs once for each setting.
set -uo pipefail
cd "$(dirname "$0")/.."

settings=()
targets=()
for argument in "$@"; do
  case $argument in
    //* | -//* | :*) targets+=("$argument") ;;
    *=*) settings+=("$argument") ;;
    *)
      echo "check_processors.sh: \"$argument\" is neither a label nor NAME=VALUE,..." >&2
      exit 2
      ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || targets=(//tests:full)
[ ${#settings[@]} -gt 0 ] || settings=(
  ATEN_CPU_CAPABILITY=default
  ATEN_CPU_CAPABILITY=avx2
  ONEDNN_MAX_CPU_ISA=SSE41
  ONEDNN_MAX_CPU_ISA=AVX2
  MKL_CBWR=COMPATIBLE
  MKL_CBWR=AVX2
  MKL_ENABLE_INSTRUCTIONS=SSE4_2
  MKL_ENABLE_INSTRUCTIONS=AVX2
  # Two whole processors.
  ATEN_CPU_CAPABILITY=default,ONEDNN_MAX_CPU_ISA=SSE41,MKL_CBWR=COMPATIBLE
  ATEN_CPU_CAPABILITY=avx2,ONEDNN_MAX_CPU_ISA=AVX2,MKL_CBWR=AVX2
)

. .ci/common
table=$(printf '%-72s %7s %7s   %s' setting passed failed 'names of the failed')
code=0
for setting in "${settings[@]}"; do
  IFS=, read -ra variables <<<"$setting"
  passed=0 failed=0
  suite "${variables[@]/#/--test_env=}" -- "${targets[@]}"
  failures=$(python3 tools/count_results.py "$events" 0 2>&1 >/dev/null | sed -n 's/^FAILED: //p' | tr '\n' ' ')
  table+=$(printf '\n%-72s %7s %7s   %s' "$setting" "$passed" "$failed" "$failures")
  [ "$failed" -eq 0 ] || code=1
done
echo "$table"
exit "$code"
