#!/usr/bin/env bash
# Tests tools/check_words.py on small trees.
set -uo pipefail
script=$PWD/$1
failures=0

# says EXIT_CODE TEXT FILE LINE...: what the script makes of a tree of one file;
# TEXT is in its output.
says() {
  local expected=$1 text=$2 file=$TEST_TMPDIR/tree/$3 output code
  shift 3
  rm -rf "$TEST_TMPDIR/tree"
  mkdir -p "$(dirname "$file")"
  printf '%s\n' "$@" >"$file"
  git init -q "$TEST_TMPDIR/tree"
  git -C "$TEST_TMPDIR/tree" add -A
  output=$(python3 "$script" "$TEST_TMPDIR/tree")
  code=$?
  [ "$code" = "$expected" ] && grep -qF -- "$text" <<<"$output" ||
    { echo "expected $expected and '$text', found $code and '$output' for: $*"; failures=1; }
}

# Comments: the first word of a block.
says 0 "" core/a.h '// The bytes' '// of a tensor.' 'int bytes;  // Of it.'
says 0 "" core/a.h '// The rank' '// Whose state it is.' '// As of CUDA 13.' 'int rank;'
says 0 "" core/a.cc '// As of CUDA 13.' '// Offsets.' 'Say("// Of it");'
says 1 'core/a.cc:2: a comment begins with "Of"' core/a.cc 'int a;' '  // Of a tensor.' '  // Bytes.'
says 1 'begins with "Whose"' tests/b/c.cc '//' '' '// Whose state it is.'
says 1 'tools/a.py:1: a comment begins with "As"' tools/a.py '# As it is.'
says 1 'core/BUILD:1: a comment begins with "Those"' core/BUILD '# Those of a room.'

# Names.
says 1 "core/a.h:1: the name Roster: write the field's term" core/a.h 'class Roster {};'
says 0 "" core/a.h 'class RosterOrder;'
says 1 "tests/a.cc:2: a variable called its" tests/a.cc '// its own' 'for (const Part& its : parts) {'
says 1 "a variable called its" core/a.cc 'const int its = 3;'
says 1 "a variable called its" tools/a.py '    its = 3'
says 0 "" core/a.cc 'Say("its = 3", its_size);  // its, too'

# Functions of public headers.
says 1 "core/a.h:1: the function BytesOf: write Bytes, or" core/a.h 'int64_t BytesOf(const at::Tensor& tensor);'
says 1 "the function SpecsOf" models/a.h '  absl::StatusOr<std::vector<int>> SpecsOf(int a) const;'
says 0 "" core/a.h 'class A {' ' private:' '  int BytesOf(int a);' '};'
says 0 "" core/a.h '  return BytesOf(a);' 'static Part Of(int a);'
says 0 "" core/a.h 'std::string NameOf(int rank);'
says 0 "" core/a.cc 'int BytesOf(int a);'
says 0 "" tests/a.h 'int BytesOf(int a);'
says 0 "" other/a.h 'class Roster {};'

# Pages: sentences.
says 1 'docs/a.md:3: a sentence begins with "Of"' docs/a.md '# A' '' 'Of a tensor the bytes are read.'
says 1 'docs/a.md:2: a sentence begins with "That"' docs/a.md 'The bytes are read.' 'That is slow.'
says 1 'README.md:1: a sentence begins with "Who"' README.md 'Read it. **Who may write** is said below.'
says 1 'docs/decisions/a.md:1: a sentence begins with "Those"' docs/decisions/a.md '| a | Those of a rank |'
says 1 'tests/a/b/README.md:1: a sentence begins with "Whose"' tests/a/b/README.md '- Whose state it is'
says 1 'third_party/README.md:2' third_party/README.md '' 'Of it.'
says 0 "" docs/a.md '# Who reads this' '' 'The bytes of those ranks that wait, and whose they are.' '' '    Of a log.' '' 'End.'
says 0 "" docs/a.md '```' 'Of a block.' '```' '`Of code`, <!-- Of it --> and "Of a' 'message", [a](Of).'
says 0 "" docs/a/b.md 'Of no page that is read.'

# Pages: words.
says 1 'CHANGELOG.md:1: "whoever": write any process that' CHANGELOG.md 'Gloo takes whoever connects.'
says 1 'docs/a.md:1: "in one piece": write whole' docs/a.md 'It is read in' 'one piece.'
says 1 '"rooms": write package' docs/a.md 'Two rooms include it.'
says 1 '"its share": write its part' docs/a.md 'A rank keeps its share.'
says 1 '"has not": write lacks' docs/a.md '| what LibTorch has not |'
says 1 '"has not"' docs/a.md 'A file that LibTorch has not' '' 'Another.'
says 1 '"One'"'"'s own": write your own' docs/a.md 'One'"'"'s own loop.'
says 1 '"floor": write lower bound' docs/a.md 'A floor beside the figure.'
says 0 "" docs/a.md 'A channel has room for its share of 2.' 'The model has not' 'learned, `in one piece`, a household.'

# Texts of programs.
says 1 'core/a.cc:2: "the others": write the rest' core/a.cc 'Say(' '    "rank 1 waits for the "' '    "others");'
says 1 'tools/a.def:1: a text begins with "Of"' tools/a.def 'FLAG(width, "Of the model.")'
says 0 "" core/a.cc '#include "core/the others"' '// "the others"' 'Say("others", "no floor-plan", "http://a b");'
says 0 "" tests/a.cc 'Say("what is there");'

exit "$failures"
