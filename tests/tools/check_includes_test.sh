#!/usr/bin/env bash
# Tests tools/check_includes.py on a small tree and a small LibTorch.
set -uo pipefail
script=$PWD/$1
failures=0
torch=$TEST_TMPDIR/torch
tree=$TEST_TMPDIR/tree

# header PATH LINES INCLUDED...: a header of LibTorch.
header() {
  local path=$torch/$1 lines=$2
  shift 2
  mkdir -p "$(dirname "$path")"
  printf '#include <%s>\n' "$@" >"$path"
  yes '' | head -n "$lines" >>"$path"
}
# ours PATH INCLUDED...: a file of ours.
ours() {
  local path=$tree/$1
  shift
  mkdir -p "$(dirname "$path")"
  printf '#include "%s"\n' "$@" >"$path"
}
# says EXIT_CODE TEXT [PRECOMPILED...]: what the script makes of the tree.
says() {
  local expected=$1 text=$2 output code
  shift 2
  output=$(python3 "$script" "$tree" "$torch" "$@")
  code=$?
  [ "$code" = "$expected" ] && grep -qF -- "$text" <<<"$output" ||
    { echo "expected $expected and '$text', found $code and '$output'"; failures=1; }
}

header ATen/Tensor.h 90000 c10/Device.h
header c10/Device.h 10000 vector
# A circle, a path from the API's root, and one beside the including file.
header torch/csrc/api/include/torch/nn/module.h 100000 torch/nn/sibling.h
header torch/csrc/api/include/torch/nn/sibling.h 100000 torch/nn/module.h ATen/Tensor.h

ours core/light.h ATen/Tensor.h
ours core/light.cc core/light.h c10/Device.h vector
says 0 ""
ours core/heavy.h torch/nn/module.h
ours core/user.cc core/heavy.h core/light.h
says 1 "core/user.cc includes 300005 lines of LibTorch"
says 0 "" core/user.cc
ours tests/user_test.cc core/heavy.h
says 1 "tests/user_test.cc includes" core/user.cc

exit "$failures"
