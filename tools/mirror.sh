#!/usr/bin/env bash
# Fills a folder with every file that tandem's build downloads, for a site
# without internet (third_party/README.md).
#   tools/mirror.sh [--cuda] FOLDER      --cuda: what --config=cuda and //tests:full download, too
# Run it where there is internet; what Bazel's repository cache has already is
# not downloaded again. Every file is checked against its sha256. There:
#   bazel build --repo_env=TANDEM_MIRROR=/FOLDER //...
set -euo pipefail

fail() { echo "mirror: $*" >&2; exit 1; }

without='cuda_toolkit|libtorch_cuda|peft'
if [ "${1:-}" = --cuda ]; then
  without=none
  shift
fi
[ $# -eq 1 ] || fail "usage: tools/mirror.sh [--cuda] FOLDER"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

work=$(mktemp -d)
startup=(--output_base="$work/output" --max_idle_secs=60)
finish() {
  bazel "${startup[@]}" shutdown || true
  # Bazel's output folders are read-only.
  chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT

bazel "${startup[@]}" query --noshow_progress --output=build //external:all |
  python3 tools/list_downloads.py | grep -vE " ($without)\$" >"$work/downloads"
[ -s "$work/downloads" ] || fail "Bazel lists no downloads"

# A fetch from nowhere but the origins: an older mirror must not stand in, for
# only a download reaches the repository cache.
mapfile -t only < <(awk '{ print "--only=" $3 }' "$work/downloads" | sort -u)
bazel "${startup[@]}" sync --noshow_progress --repo_env=TANDEM_MIRROR= --repo_env=TANDEM_CUDA_TOOLKIT= "${only[@]}" ||
  fail "Bazel could not fetch everything (see above)"

cache=$(bazel "${startup[@]}" info repository_cache)/content_addressable/sha256
while read -r sha256 filename _; do
  [ -f "$cache/$sha256/file" ] || fail "$filename is not in Bazel's repository cache $cache"
  cp "$cache/$sha256/file" "$folder/$filename.part"
  mv "$folder/$filename.part" "$folder/$filename"
done <"$work/downloads"

awk '{ print $1 "  " $2 }' "$work/downloads" >"$folder/SHA256SUMS"
(cd "$folder" && sha256sum --check --quiet SHA256SUMS) || fail "a file in $folder is damaged"
echo "mirror: $(wc -l <"$work/downloads") files, $(du -sh "$folder" | cut -f1), in $folder"
