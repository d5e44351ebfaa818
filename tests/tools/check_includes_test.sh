#!/usr/bin/env bash
# Tests tools/check_includes.py on a small tree and a small LibTorch.
set -uo pipefail
script=$PWD/$1
failures=0
torch=$TEST_TMPDIR/torch
tree=$TEST_TMPDIR/tree
description=$TEST_TMPDIR/description.json

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
# says EXIT_CODE TEXT TARGETS: what the script makes of the tree.
says() {
  local expected=$1 text=$2 targets=$3 output code
  cat >"$description" <<END
{"precompiled": {"standard": ["vector"], "tensors": ["vector", "ATen/Tensor.h"],
                 "modules": ["torch/nn/module.h"], "tensors_test": ["ATen/Tensor.h"],
                 "modules_test": ["torch/nn/module.h", "vector"]},
 "targets": $targets}
END
  output=$(python3 "$script" "$tree" "$torch" "$description")
  code=$?
  [ "$code" = "$expected" ] && grep -qF -- "$text" <<<"$output" ||
    { echo "expected $expected and '$text', found $code and '$output'"; failures=1; }
}

header ATen/Tensor.h 90000 c10/Device.h
header c10/Device.h 9998 vector
# A circle, a path from the API's root, and one beside the including file.
header torch/csrc/api/include/torch/nn/module.h 100000 torch/nn/sibling.h
header torch/csrc/api/include/torch/nn/sibling.h 100000 torch/nn/module.h ATen/Tensor.h

ours core/none.cc vector
ours core/device.cc c10/Device.h
ours core/light.h ATen/Tensor.h
ours core/light.cc core/light.h c10/Device.h vector
ours core/heavy.h torch/nn/module.h
ours core/heavy.cc core/heavy.h core/light.h

says 0 "" '{"//core:none": [[["core/none.cc"]], "standard"],
            "//core:light": [[["core/light.cc"]], "tensors"],
            "//core:heavy": [[["core/heavy.cc"]], "modules"]}'
# A target without any is told, too.
for name in '' standard; do
  says 1 '//core:light costs 100000 lines of LibTorch: 20000 with precompiled = "tensors"' \
    '{"//core:light": [[["core/light.cc"]], "'$name'"]}'
done
# What it has is loaded, the rest parsed.
says 1 '//core:heavy costs 220003 lines of LibTorch: 60001 with precompiled = "modules"' \
  '{"//core:heavy": [[["core/heavy.cc"]], "tensors"]}'
# More than it needs.
says 1 '//core:none costs 20000 lines of LibTorch: 0 with precompiled = "standard"' \
  '{"//core:none": [[["core/none.cc"]], "tensors"]}'
# Files of a target share one.
says 1 '//core:two costs 120001 lines of LibTorch: 40000 with precompiled = "tensors"' \
  '{"//core:two": [[["core/light.cc"], ["core/none.cc"]], "modules"]}'
# Siblings that are compiled together include and load once.
says 1 '//core:two costs 100000 lines of LibTorch: 20000 with precompiled = "tensors"' \
  '{"//core:two": [[["core/light.cc", "core/device.cc"]], ""]}'
# Little is passed over.
says 0 "" '{"//core:device": [[["core/device.cc"]], "standard"]}'
# Tests have headers of their own.
says 0 "" '{"//tests:light": [[["core/light.cc"]], "tensors_test"]}'
says 1 '//tests:light costs 60001 lines of LibTorch: 20000 with precompiled = "tensors"' \
  '{"//tests:light": [[["core/light.cc"]], "modules_test"]}'

exit "$failures"
