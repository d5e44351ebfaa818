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
    # A line for each place that differs; of each file, its name is enough.
    said=$(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 64 "$clang_format" --dry-run -Werror 2>&1) || {
      grep -o '^[^ :]*:[0-9]*:[0-9]*: error: code should be clang-formatted' <<<"$said" |
        sed 's/:.*//; s/^/not formatted: /' | sort -u | grep . || echo "$said"
      echo "Format with: bazel run //tools:format"
      exit 1
    }
    ;;
  *) echo "format: unknown argument '$1'; known: --check" >&2; exit 2 ;;
esac
