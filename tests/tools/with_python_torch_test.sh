#!/usr/bin/env bash
# Tests tools/with_python_torch.sh, which must know LibTorch's version, with Pythons
# that have made-up packages.
set -uo pipefail
script=$PWD/$1
version=$(sed -n 's/^"""LibTorch \([0-9.]*\): .*/\1/p' "$2")
[ -n "$version" ] || { echo "no version of LibTorch in $2"; exit 1; }
failures=0
cd "$TEST_TMPDIR"

# says EXPECTED COMMAND...: EXPECTED is a part of what it prints.
says() {
  local expected=$1 output
  shift
  output=$("$@" 2>&1)
  case $output in
    *"$expected"*) ;;
    *) echo "expected '$expected', found '$output' for: $*"; failures=1 ;;
  esac
}
# package FOLDER VERSION: a Python's folder of packages.
package() {
  mkdir -p "$1/torch/lib" "$1/torch-$2.dist-info"
  touch "$1/torch/__init__.py"
  printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "$2" >"$1/torch-$2.dist-info/METADATA"
}

# Nothing is to be found but what PYTHONPATH names.
printf '#!/bin/sh\nexec python3 -S "$@"\n' >python
chmod +x python
export PYTHON=$PWD/python PYTHONPATH=

package right "$version+cu130"
mkdir -p right/nvidia/cu13/lib right/nvidia/nccl/lib
touch right/torch/lib/libtorch_cuda.so
show=(sh -c 'echo "$LD_LIBRARY_PATH $1"' -)
says "$PWD/right/torch/lib:$PWD/right/nvidia/cu13/lib:$PWD/right/nvidia/nccl/lib an argument" \
  env PYTHONPATH="$PWD/right" LD_LIBRARY_PATH= "$script" "${show[@]}" "an argument"
says "nccl/lib:/mine" env PYTHONPATH="$PWD/right" LD_LIBRARY_PATH=/mine "$script" "${show[@]}"

package old 2.10.0
says "has torch 2.10.0, and the program needs $version" env PYTHONPATH="$PWD/old" "$script" true
package cpu "$version+cpu"
says "is without CUDA" env PYTHONPATH="$PWD/cpu" "$script" true
says "has no package torch" "$script" true
says "no_python does not run" env PYTHON="$PWD/no_python" "$script" true
says "usage: " "$script"

env PYTHONPATH="$PWD/right" "$script" sh -c 'exit 7'
[ $? -eq 7 ] || { echo "the program's exit code is lost"; failures=1; }
"$script" true 2>/dev/null
[ $? -eq 2 ] || { echo "a refusal is not exit code 2"; failures=1; }
exit "$failures"
