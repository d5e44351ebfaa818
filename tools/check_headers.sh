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

while IFS= read -r file; do
  complain "$file: in no target's hdrs or srcs"
done < <(printf '%s\n' "${files[@]}" | grep -vxFf <(echo "$declared"))

# Each "#ifndef NAME", "#define NAME" of a header, behind the header's name.
guards=$(printf '%s\0' "${files[@]}" | xargs -0 grep -HoE '^#(ifndef|define) TANDEM_[A-Z0-9_]+_H_$')
while IFS= read -r line; do
  complain "${line%%:*}: include guard is not ${line##* }"
done < <(printf '%s\n' "${files[@]}" | grep '[.]h$' | while IFS= read -r file; do
  guard=${file^^}
  guard=TANDEM_${guard//[\/.-]/_}_
  printf '%s:#ifndef %s\n%s:#define %s\n' "$file" "$guard" "$file" "$guard"
done | grep -vxFf <(echo "$guards"))
exit "$failed"
