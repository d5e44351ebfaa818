#!/usr/bin/env bash
# run_asynchronously.sh PROGRAM SEEDS [FILTER]
#
# Runs those tests of PROGRAM that are on simulated devices, on asynchronous
# ones, whose work is held up for random times: once for each seed from 1 to
# SEEDS. FILTER is googletest's.
set -eu

program=$1
seeds=$2
filter=${3:-*/sim*}
log=$TEST_TMPDIR/log

export TANDEM_SIM_ASYNC=${TANDEM_SIM_ASYNC:-200}
for seed in $(seq 1 "$seeds"); do
  if ! TANDEM_SIM_SEED=$seed "$program" --gtest_filter="$filter" >"$log" 2>&1; then
    cat "$log"
    echo "FAILED with TANDEM_SIM_ASYNC=$TANDEM_SIM_ASYNC TANDEM_SIM_SEED=$seed"
    exit 1
  fi
  if ! grep -qE '^(\[  PASSED  \] [1-9]|[1-9][0-9]* tests, 0 failed)' "$log"; then
    cat "$log"
    echo "no test of $program is named $filter"
    exit 1
  fi
done
