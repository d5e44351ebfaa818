#!/usr/bin/env bash
# run_program.sh PROGRAM FILTER
# run_program.sh PROGRAM FILTER SEEDS [FILTER SEEDS]...
#
# Runs those tests of PROGRAM that FILTER, googletest's, names. With SEEDS, on
# asynchronous simulated devices, whose work is held up for random times: once
# for each seed from 1 to SEEDS. It fails, too, if FILTER names no test.
set -eu

program=$1 log=$TEST_TMPDIR/log
shift

run() {
  local filter=$1 code=0
  shift
  "$program" --gtest_filter="$filter" >"$log" 2>&1 || code=$?
  cat "$log"
  [ "$code" -eq 0 ] || { echo "FAILED${*:+ with $*}"; exit 1; }
  grep -qE '^(\[  (PASSED|SKIPPED)  ?\] [1-9]|[1-9][0-9]* tests, 0 failed)' "$log" ||
    { echo "no test of $program is named $filter"; exit 1; }
}

if [ $# -eq 1 ]; then
  run "$1"
else
  export TANDEM_SIM_ASYNC=${TANDEM_SIM_ASYNC:-200} TANDEM_SIM_SEED
  while [ $# -gt 0 ]; do
    for TANDEM_SIM_SEED in $(seq 1 "$2"); do
      run "$1" "TANDEM_SIM_ASYNC=$TANDEM_SIM_ASYNC TANDEM_SIM_SEED=$TANDEM_SIM_SEED"
    done
    shift 2
  done
fi
