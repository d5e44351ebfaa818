#!/usr/bin/env bash
# Tests tools/count_results.py on what Bazel writes: one event a line.
set -uo pipefail
script=$1
failures=0
options=()

# counts EXPECTED EXIT_CODE EVENT...
counts() {
  local expected=$1 exit_code=$2 found
  shift 2
  printf '%s\n' "$@" >"$TEST_TMPDIR/events"
  found=$(python3 "$script" "$TEST_TMPDIR/events" "$exit_code" "${options[@]}" 2>"$TEST_TMPDIR/names")
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

# What took longer than the limit is named, what took twice as long fails, and the slowest are listed first; without a
# limit none of it.
run() { echo '{"id":{"testResult":{"label":"'"$1"'","run":1,"shard":'"$2"',"attempt":1}},"testResult":{"testAttemptDurationMillis":"'"$3"'"}}'; }
slow() { counts "$1" 0 "$(summary //a:t PASSED)" "$(run //a:t 1 900)" "$(summary //a:u PASSED)" "$(run //a:u 1 300)" "$(run //a:u 2 20100)"; }
named() { grep -q "^$1" "$TEST_TMPDIR/names" || { echo "not printed: $1"; failures=1; }; }
slow "2 0"
[ ! -s "$TEST_TMPDIR/names" ] || { echo "something is listed"; failures=1; }
options=(--limit=21)
slow "2 0"
! grep -q SLOW "$TEST_TMPDIR/names" || { echo "a test within the limit is named"; failures=1; }
options=(--limit=20)
slow "2 0"
named "SLOW: //a:u took 20.1 s and may take 20"
options=(--limit=10)
slow "1 1"
named "TOO SLOW: //a:u took 20.1 s and may take 10"
listed=$(grep -o '[0-9.]* s  .*' "$TEST_TMPDIR/names")
[ "$listed" = "$(printf '%s\n' "20.1 s  //a:u, shard 2 (run)" "0.9 s  //a:t (run)" "0.3 s  //a:u (run)")" ] ||
  { echo "listed are: $listed"; failures=1; }
exit "$failures"
