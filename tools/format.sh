#!/usr/bin/env bash
# Formats tandem's C++ and CUDA files with the pinned clang-format.
#   bazel run //tools:format              rewrites files
#   bazel run //tools:format -- --check   lists the files that differ; fails if any
set -euo pipefail

clang_format=$PWD/$1
shift
cd "$BUILD_WORKSPACE_DIRECTORY"

# Tracked and new files alike; not what git ignores, nor what has been removed
# but is still tracked.
files=()
while IFS= read -r file; do
  [ ! -f "$file" ] || files+=("$file")
done < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cc' '*.cu' | sort -u)

case ${1:-} in
  "") "$clang_format" -i "${files[@]}" ;;
  --check)
    differ=0
    for file in "${files[@]}"; do
      "$clang_format" "$file" | cmp -s - "$file" || { echo "not formatted: $file"; differ=1; }
    done
    [ "$differ" -eq 0 ] || { echo "Format with: bazel run //tools:format"; exit 1; }
    ;;
  *) echo "format: unknown argument '$1'; known: --check" >&2; exit 2 ;;
esac
