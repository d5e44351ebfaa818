#!/usr/bin/env bash
# Tests tools/count_results.py on what Bazel writes: one event a line.
set -uo pipefail
script=$1
failures=0

# counts EXPECTED EXIT_CODE EVENT...
counts() {
  local expected=$1 exit_code=$2 found
  shift 2
  printf '%s\n' "$@" >"$TEST_TMPDIR/events"
  found=$(python3 "$script" "$TEST_TMPDIR/events" "$exit_code" 2>"$TEST_TMPDIR/names")
  [ "$found" = "$expected" ] || { echo "expected '$expected', found '$found' for: $*"; failures=1; }
}
summary() { echo '{"id":{"testSummary":{"label":"'"$1"'"}},"testSummary":{"overallStatus":"'"$2"'"}}'; }
completed() { echo '{"id":{"targetCompleted":{"label":"'"$1"'"}},"completed":{'"$2"'}}'; }
aborted() { echo '{"id":{"'"$1"'":{"label":"'"$2"'"}},"aborted":{"reason":"'"$3"'"}}'; }

counts "2 0" 0 "$(completed //a:t '"success":true')" "$(summary //a:t PASSED)" "$(summary //a:u FLAKY)"
counts "1 2" 3 "$(summary //a:t PASSED)" "$(summary //a:u FAILED)" "$(summary //a:v TIMEOUT)"
counts "1 1" 1 "$(summary //a:t PASSED)" "$(completed //a:lib '')"
counts "0 1" 1 "$(completed //a:t '')" "$(summary //a:t NO_STATUS)"
counts "0 1" 1 "$(aborted targetCompleted //a:t ANALYSIS_FAILURE)" "$(aborted configuredLabel //a:t.cc ANALYSIS_FAILURE)"
counts "1 0" 0 "$(summary //a:t PASSED)" "$(aborted targetCompleted //a:u SKIPPED)"
counts "0 1" 1 '{"id":{"pattern":{"pattern":["//..."]}},"aborted":{"reason":"LOADING_FAILURE"}}'
# A failure that names no target: Bazel itself, or no tests at all.
counts "0 1" 4 '{"id":{"started":{}},"started":{}}'
counts "0 1" 37 'not an event'
counts "0 1" 0 'not an event'

counts "0 1" 3 "$(summary //a:broken FAILED)"
grep -q '^FAILED: //a:broken$' "$TEST_TMPDIR/names" || { echo "the failure is not named"; failures=1; }
exit "$failures"
