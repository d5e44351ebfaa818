#!/bin/bash
# tools/check_launchers.sh without the launchers that would have to be fetched.

set -euo pipefail

export TMPDIR="$TEST_TMPDIR"
script="$1"
probe="$2"
fail() { echo "FAILED: $*" >&2; exit 1; }

# Equal losses: a table and success.
out="$("$script" --program "$probe" \
  --launchers tandem)" || fail "exit code $?"
grep -qE '^tandem +1 +0\.5$' <<< "$out" || fail "no line of tandem in: $out"

# A program that fails is told, with its output.
if out="$("$script" \
  --program "$probe" --launchers tandem -- --behaviour=1:exit:3 2>&1)"; then
  fail "success although rank 1 died"
fi
grep -q 'rank 1 of 2 .* died: exit code 3' <<< "$out" || fail "no report: $out"

# An unknown launcher names the known ones.
if out="$("$script" --program "$probe" --launchers foo 2>&1)"; then
  fail "success under an unknown launcher"
fi
grep -q 'known: tandem, torchrun, mpirun, mpich, srun' <<< "$out" || fail "$out"

# Nothing is left behind.
[[ -z "$(ls "$TEST_TMPDIR" | grep tandem-launchers || true)" ]] ||
  fail "left: $(ls "$TEST_TMPDIR")"
