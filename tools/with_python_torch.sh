#!/usr/bin/env bash
# Runs a program built with --config=cuda on a machine that has PyTorch's Python
# package and no Bazel: with LibTorch's and NVIDIA's libraries of that package.
#   tools/with_python_torch.sh PROGRAM [ARGUMENT...]
# PYTHON names the Python that has it (default: python3). The package must be of
# the version that the program was built with: torch 2.15.0, CUDA 13.
set -euo pipefail

fail() { echo "with_python_torch: $*" >&2; exit 2; }

[ $# -gt 0 ] || fail "usage: tools/with_python_torch.sh PROGRAM [ARGUMENT...]"
python=${PYTHON:-python3}
# Found, not imported: that would take seconds.
found=$("$python" - <<'END'
import importlib.metadata
import importlib.util
import os

spec = importlib.util.find_spec("torch")
if spec is not None:
    print(importlib.metadata.version("torch"), os.path.dirname(spec.origin))
END
) || fail "$python does not run"
[ -n "$found" ] || fail "$python has no package torch; PYTHON=/path/to/python names another"
version=${found%% *} torch=${found#* }
case $version in
  2.15.0 | 2.15.0+*) ;;
  *) fail "$python has torch $version, and the program needs 2.15.0, of whose libraries it is built" ;;
esac
[ -e "$torch/lib/libtorch_cuda.so" ] || fail "torch $version in $torch is without CUDA; install the one with CUDA 13"

libraries=$torch/lib
# NVIDIA's packages lie beside torch, or in another folder of Python's path.
for folder in "$torch"/../nvidia/*/lib; do
  [ ! -d "$folder" ] || libraries=$libraries:$(cd "$folder" && pwd)
done
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
