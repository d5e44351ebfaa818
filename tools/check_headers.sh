#!/usr/bin/env bash
# Checks what Bazel does not: that every C++ file belongs to a target, and that
# every header has an include guard named after its path.
#   tools/check_headers.sh
# Prints one line for each file that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

folders=(core datasets models parallel tests tools)
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- "${folders[@]/%//*.h}" "${folders[@]/%//*.cc}" | sort -u)

# What a target names, as paths: //core/mesh:mesh.h -> core/mesh/mesh.h.
declared=$(bazel query --noshow_progress --order_output=no \
  'labels(hdrs, //...) union labels(srcs, //...) union labels(textual_hdrs, //...)' |
  sed -n 's|^//\(.*\):\(.*\)$|\1/\2|p')

failed=0
complain() { echo "$*"; failed=1; }

for file in "${files[@]}"; do
  grep -qxF "$file" <<<"$declared" || complain "$file: in no target's hdrs or srcs"
  [[ $file == *.h ]] || continue
  guard=TANDEM_$(tr 'a-z/.-' 'A-Z___' <<<"$file")_
  grep -qx "#ifndef $guard" "$file" && grep -qx "#define $guard" "$file" ||
    complain "$file: include guard is not $guard"
done
exit "$failed"
