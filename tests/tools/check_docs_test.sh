#!/usr/bin/env bash
# Tests tools/check_docs.py on small trees.
set -uo pipefail
script=$PWD/$1
failures=0

# page LINE...: a tree with the script, a source, and a page of these lines.
page() {
  rm -rf "$TEST_TMPDIR/tree"
  mkdir -p "$TEST_TMPDIR/tree/tools" "$TEST_TMPDIR/tree/core"
  cp "$script" "$TEST_TMPDIR/tree/tools/"
  printf '%s\n' 'int F() {' '  if (a) {' '    b();' '  }' '' '  return c;' '}' >"$TEST_TMPDIR/tree/core/f.cc"
  printf '%s\n' "$@" >"$TEST_TMPDIR/tree/page.md"
  git init -q "$TEST_TMPDIR/tree"
}
# says EXIT_CODE TEXT [PAGE]: what the script makes of the page; TEXT is in its output.
says() {
  local output code
  output=$(python3 "$TEST_TMPDIR/tree/tools/check_docs.py" "${3:-page.md}" 2>&1)
  code=$?
  [ "$code" = "$1" ] && grep -qF -- "$2" <<<"$output" ||
    { echo "expected $1 and '$2', found $code and '$output'"; failures=1; }
}
# quote LINE...: a page that quotes these lines.
quote() {
  page 'Text.' '' '<!-- quotes core/f.cc -->' '```cpp' "$@" '```'
}

page '# A heading' '[file](core/f.cc), [heading](#a-heading), core/f.cc, core/f'
says 0 ""
page '[a](core/g.cc)'
says 1 "page.md:1: a link to core/g.cc, which is not there"
page '# A' '[a](#b)'
says 1 "page.md:2: a link to #b"
page 'See core/g.h.'
says 1 "page.md:1: no file or folder is called core/g.h"

page '[a](docs/a.md)'
mkdir "$TEST_TMPDIR/tree/docs"
echo '# A' >"$TEST_TMPDIR/tree/docs/a.md"
echo '[b](b.md)' >"$TEST_TMPDIR/tree/docs/README.md"
echo '# B' >"$TEST_TMPDIR/tree/docs/b.md"
says 1 "docs/README.md: no link to docs/a.md" docs/README.md
echo '[a](a.md), [b](b.md)' >"$TEST_TMPDIR/tree/docs/README.md"
says 0 "" docs/README.md

quote 'int F() {' '  if (a) {' '    b();' '  }' '' '  return c;' '}'
says 0 ""
quote 'if (a) {' '  b();' '}' '' 'return c;'
says 0 ""
quote '    if (a) {' '      b();'
says 0 ""
quote 'if (a) {' '...' 'return c;'
says 0 ""
quote 'if (a) {' '  ...' '' 'return c;' ''
says 0 ""
quote 'if (b) {'
says 1 'page.md:3: core/f.cc has not, or not in this place, what begins with "if (b) {"'
quote 'if (a) {' 'b();'
says 1 'what begins with "if (a) {"'
quote 'if (a) {' 'return c;'
says 1 'what begins with "if (a) {"'
quote 'return c;' '...' 'if (a) {'
says 1 'what begins with "if (a) {"'
quote 'return'
says 1 'what begins with "return"'
page '<!-- quotes core/g.cc -->' '```' 'a' '```'
says 1 "a quote of core/g.cc, which is not there"

exit "$failures"
