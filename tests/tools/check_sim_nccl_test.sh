#!/usr/bin/env bash
# Tests tools/check_sim_nccl.py on a small folder.
set -uo pipefail
script=$PWD/$1
failures=0
folder=$TEST_TMPDIR/room

# says EXIT_CODE TEXT BUILD: what the script makes of the folder with that BUILD
# file; TEXT is in its output.
says() {
  local output code
  printf '%s\n' "$3" >"$folder/BUILD"
  output=$(python3 "$script" "$folder")
  code=$?
  [ "$code" = "$1" ] && grep -qF -- "$2" <<<"$output" ||
    { echo "expected $1 and '$2', found $code and '$output'"; failures=1; }
}

mkdir -p "$folder"
touch "$folder/a_test.cc" "$folder/no_test_of_its_own.cc"
echo '// on sim_nccl' >"$folder/b_test.cc"

says 0 "1 by itself, 1 on sim_nccl" \
  'sim_nccl_tests(["a_test"], themselves = ["b_test"])'
says 0 "1 exceptions, 1 on sim_nccl" \
  'sim_nccl_tests(programs = ["b_test"], exceptions = {"no ranks": ["a_test"]})'
says 1 "a_test is not named by sim_nccl_tests" 'sim_nccl_tests(["b_test"])'
says 1 "a_test is not named by sim_nccl_tests" '# nothing'
says 1 "a_test does not name sim_nccl" \
  'sim_nccl_tests(["b_test"], themselves = ["a_test"])'
says 1 "a_test is an exception without a reason" \
  'sim_nccl_tests(["b_test"], exceptions = {"": ["a_test"]})'
says 1 "a_test is named more than once" \
  'sim_nccl_tests(["a_test", "b_test"], exceptions = {"no ranks": ["a_test"]})'
says 1 "c_test there is no such test program" \
  'sim_nccl_tests(["a_test", "b_test", "c_test"])'
# By the name of their program, or by their own.
joined='tandem_tests(name = "tests", units = [["a_test.cc"], ["b_test.cc"]])'
says 0 "2 on sim_nccl" "$joined; sim_nccl_tests([\"tests\"])"
says 0 "1 by itself, 1 exceptions" \
  "$joined; sim_nccl_tests(themselves = [\"b_test\"], exceptions = {\"no ranks\": [\"a_test\"]})"
says 1 "b_test is not named by sim_nccl_tests" "$joined; sim_nccl_tests(exceptions = {\"no ranks\": [\"a_test\"]})"
says 1 "a_test is named more than once" "$joined; sim_nccl_tests([\"tests\"], exceptions = {\"no ranks\": [\"a_test\"]})"

exit "$failures"
