#!/usr/bin/env bash
# Checks that //tests:full has every test, and that nobody else has what only it is to
# have: what is "nightly" is "manual", too. Tests that need a GPU ("cuda") are in neither.
#   tools/check_suites.sh
# Prints what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=$(bazel query --noshow_progress \
  "kind('.*_test rule', //...) except attr(tags, '\bcuda\b', //...) except tests(//tests:full)")
[ -z "$missing" ] || {
  echo "$missing"
  echo "are not in //tests:full: a package's BUILD file ends with full_suite(), and tests/BUILD lists the package."
  exit 1
}
