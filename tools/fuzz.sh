#!/usr/bin/env bash
# Fuzzes what reads files, flags, environment and ranks' output, with coverage
# (clang's libFuzzer), one target after the other, and prints a table.
#   tools/fuzz.sh                          every target, 600 seconds each
#   tools/fuzz.sh --seconds=60 idx launch  some of them, a minute each
# Needs tools/setup.sh --sanitizers. Inputs that reach new code are kept in
# --folder (fuzz-corpora), and the next run begins with them; what fails lies in
# its folder findings. tests/fuzz/README.md says what to do with it.
set -uo pipefail

fail() { echo "fuzz: $*" >&2; exit 2; }

seconds=600 folder=$PWD/fuzz-corpora targets=()
for argument in "$@"; do
  case $argument in
    --seconds=*) seconds=${argument#*=} ;;
    --folder=*) folder=$(realpath -m "${argument#*=}") ;;
    -*) fail "usage: tools/fuzz.sh [--seconds=N] [--folder=DIR] [TARGET...]" ;;
    *) targets+=("$argument") ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "--seconds=$seconds: expected a number of 1 or more"
[ -e "$(clang -print-file-name=libclang_rt.fuzzer-x86_64.a 2>/dev/null)" ] ||
  fail "Clang's libFuzzer is not here: tools/setup.sh --sanitizers installs it"

cd "$(dirname "$0")/.." || exit 2
known=$(cd tests/fuzz && ls -- *_fuzz_test.cc)
[ ${#targets[@]} -gt 0 ] || targets=(${known//_fuzz_test.cc/})
labels=()
for target in "${targets[@]}"; do
  [ -e "tests/fuzz/${target}_fuzz_test.cc" ] || fail "there is no target $target; known are: ${known//_fuzz_test.cc/}"
  labels+=("//tests/fuzz:${target}_fuzz_test")
done
. .ci/common
bazel build "${options[@]}" --config=fuzz "${labels[@]}" || fail "the targets do not build"

# libFuzzer ends without destructors where it fails or is interrupted: the
# folder of its inputs goes here.
scratch=$(mktemp -d /dev/shm/fuzz.XXXXXX) || fail "no folder can be made in /dev/shm"
trap 'rm -rf "$scratch" "$events"' EXIT
trap 'exit 130' INT
export TEST_TMPDIR=$scratch
log=$scratch/log
findings=$folder/findings
mkdir -p "$findings"
# Refusals are logged, thousands a second.
export GLOG_minloglevel=3

table=$(printf '%-18s %10s %9s %8s %8s  %s' target inputs coverage kept MB result)
code=0
for target in "${targets[@]}"; do
  echo "fuzz: $target, $seconds s"
  kept=$folder/$target dictionary=tests/fuzz/$target.dict options=()
  mkdir -p "$kept"
  [ ! -e "$dictionary" ] || options+=("-dict=$dictionary")
  "bazel-bin/tests/fuzz/${target}_fuzz_test" "$kept" "tests/fuzz/corpus/$target" "${options[@]}" \
    "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    "-artifact_prefix=$findings/$target-" >"$log" 2>&1
  result=$?
  said() { grep -o "$1" "$log" | tail -1 | grep -o '[0-9]*$'; }
  if [ "$result" -eq 0 ]; then
    result=passed
  else
    result="failed: $(grep -om1 'ERROR: [^ ]*: [a-z-]*\|Check failed: .*' "$log")"
    code=1
    cp "$log" "$findings/$target.log"
  fi
  table+=$(printf '\n%-18s %10s %9s %8s %8s  %s' "$target" "$(said 'number_of_executed_units: *[0-9]*')" \
    "$(said 'cov: [0-9]*')" "$(find "$kept" -type f | wc -l)" "$(said 'peak_rss_mb: *[0-9]*')" "$result")
done
echo "$table"
[ "$code" -eq 0 ] || echo "fuzz: the inputs that failed, and what they said, lie in $findings"
exit "$code"
