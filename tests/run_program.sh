#!/usr/bin/env bash
# run_program.sh PROGRAM FILTER [SEEDS]
#
# Runs those tests of PROGRAM that FILTER, googletest's, names. With SEEDS, on
# asynchronous simulated devices, whose work is held up for random times: once
# for each seed from 1 to SEEDS. It fails, too, if FILTER names no test.
set -eu

program=$1 filter=$2 seeds=${3:-}
log=$TEST_TMPDIR/log

run() {
  local code=0
  "$program" --gtest_filter="$filter" >"$log" 2>&1 || code=$?
  cat "$log"
  [ "$code" -eq 0 ] || { echo "FAILED${*:+ with $*}"; exit 1; }
  grep -qE '^(\[  (PASSED|SKIPPED)  ?\] [1-9]|[1-9][0-9]* tests, 0 failed)' "$log" ||
    { echo "no test of $program is named $filter"; exit 1; }
}

if [ -z "$seeds" ]; then
  run
else
  export TANDEM_SIM_ASYNC=${TANDEM_SIM_ASYNC:-200} TANDEM_SIM_SEED
  for TANDEM_SIM_SEED in $(seq 1 "$seeds"); do
    run "TANDEM_SIM_ASYNC=$TANDEM_SIM_ASYNC TANDEM_SIM_SEED=$TANDEM_SIM_SEED"
  done
fi
