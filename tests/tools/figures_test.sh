#!/usr/bin/env bash
# Tests tools/figures.py on small trees.
set -uo pipefail
script=$PWD/$1
failures=0

fields=suite,case,peer,ours_ms,peer_ms,ratio,ratio_min,ratio_max,ours_mib,peer_mib,floor_ms,limit,of_limit
fields+=,whole_ms,microbatching_ms,bubble_ms,imbalance_ms,rest_ms,commit,note
ddp='ddp,mlp,eager,2.0,4.0,2.00,1.90,2.10,10,20,1.5,,,,,,,,abc,'
pipeline='pipeline,mlp/1f1b,pipelining,2.0,4.0,2.00,,,,,,0.800,0.900,1.0,0.5,0.3,0.1,0.1,,'
tree=$TEST_TMPDIR/tree
figures=$tree/docs/figures/a.csv

# tree KIND ROW...: a tree with the script, figures, and a page with a table of this kind.
tree() {
  local kind=$1
  shift
  rm -rf "$tree"
  mkdir -p "$tree/tools" "$tree/docs/figures"
  cp "$script" "$tree/tools/"
  printf '%s\n' "$fields" "$@" >"$figures"
  printf '%s\n' 'Text.' "<!-- figures docs/figures/a.csv $kind -->" '<!-- end -->' >"$tree/docs/performance.md"
}
# says EXIT_CODE TEXT ARGUMENT...: what the script prints; TEXT is in it.
says() {
  local expected=$1 text=$2 output code
  shift 2
  output=$(python3 "$tree/tools/figures.py" "$@" 2>&1)
  code=$?
  [ "$code" = "$expected" ] && grep -qF -- "$text" <<<"$output" ||
    { echo "expected $expected and '$text', found $code and '$output' for: $*"; failures=1; }
}
# page LINE: the page has this line.
page() {
  grep -qxF -- "$1" "$tree/docs/performance.md" ||
    { echo "no line '$1' in:"; cat "$tree/docs/performance.md"; failures=1; }
}

tree steps "$ddp" "$pipeline"
says 1 "the table docs/figures/a.csv steps is not that of its figures" --check
says 0 ""
page '| suite | case | peer | tandem, ms | peer, ms | ratio (rounds) | MiB a rank, tandem / peer | lower bound, ms | commit, note |'
page '| ddp | mlp | eager | 2.0 | 4.0 | 2.00 (1.90 – 2.10) | 10 / 20 | 1.5 (75 %) | abc |'
says 0 "" --check
sed -i 's/2.10/2.20/' "$figures"
says 1 "is not that of its figures" --check

tree pipelines "$ddp" "$pipeline"
says 0 ""
page '| mlp/1f1b | 2.0 | 4.0 | 2.00 | 80.0 % | 90.0 % | 1.0 | 0.5 | 0.3 | 0.1 | 0.1 |'

tree steps
says 0 ""
page 'No figures yet.'

tree others "$ddp"
says 1 "no table is called others; there are steps, pipelines"
tree steps 'ddp,mlp'
says 1 "a row has not"

# What a benchmark wrote.
tree steps "$ddp"
cat >"$TEST_TMPDIR/ddp.json" <<'EOF'
{"cases": [{"name": "mlp", "peer": "eager", "ours_ms": 1.2345, "peer_ms": 1234.5, "ratio": 3, "ratio_min": 2.5,
            "ratio_max": 3.5, "ours_mib": 100.0, "peer_mib": 200.0},
           {"name": "gpt", "peer": "eager", "ours_ms": 12, "peer_ms": 34.56, "ratio": 2.88}],
 "floors": [{"name": "mlp", "floor_ms": 0.617}]}
EOF
says 0 "" --import="$TEST_TMPDIR/ddp.json" --suite=ddp --commit=def "$figures"
page '| ddp | mlp | eager | 1.23 | 1234 | 3.00 (2.50 – 3.50) | 100 / 200 | 0.617 (50 %) | def |'
page '| ddp | gpt | eager | 12.0 | 34.6 | 2.88 |  |  | def |'

tree pipelines
cat >"$TEST_TMPDIR/pipeline.json" <<'EOF'
{"cases": [{"name": "mlp/1f1b", "peer": "pipelining", "ours_ms": 2.0, "peer_ms": 4.0, "ratio": 2.0}],
 "efficiency": [{"name": "mlp/1f1b", "limit": 0.8, "of_limit": 0.9}],
 "parts": [{"name": "mlp/1f1b", "whole_ms": 1.0, "microbatching_ms": 0.5, "bubble_ms": 0.3, "imbalance_ms": 0.1,
            "rest_ms": 0.1}]}
EOF
says 0 "" --import="$TEST_TMPDIR/pipeline.json" --suite=pipeline "$figures"
page '| mlp/1f1b | 2.00 | 4.00 | 2.00 | 80.0 % | 90.0 % | 1.0 | 0.5 | 0.3 | 0.1 | 0.1 |'

tree steps
echo '{"jobs": [{"name": "cnn", "ours_s": 3.74, "peer_s": 7.16, "ratio": 1.91}]}' >"$TEST_TMPDIR/job.json"
says 0 "" --import="$TEST_TMPDIR/job.json" --suite=job "$figures"
page '| job | cnn | python | 3740 | 7160 | 1.91 |  |  | a whole job |'
says 1 "has neither cases nor jobs" --import=/dev/stdin --suite=job "$figures" <<<'{}'
says 2 "--import takes --suite" --import="$TEST_TMPDIR/job.json"

exit "$failures"
