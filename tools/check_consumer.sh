#!/usr/bin/env bash
# Checks that docs/examples/consumer, a workspace that uses tandem as an external
# repository, as its users would, knows every label that it and tandem's own
# targets need: all are analysed. The workspace is a copy that knows this checkout by its path, with
# an output base of its own, which is kept (~/.cache/tandem/consumer, below
# XDG_CACHE_HOME if that is set).
#   tools/check_consumer.sh
#   tools/check_consumer.sh --run   builds its programs, too, and runs them: compiles the library once more
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
run=no
case ${1:-} in
  "") ;;
  --run) run=yes ;;
  *) echo "check_consumer: unknown argument '$1'; known: --run" >&2; exit 2 ;;
esac

caches=${XDG_CACHE_HOME:-$HOME/.cache}/tandem
mkdir -p "$caches/consumer"
# Another checkout's check has the same folder.
exec 9>"$caches/consumer/lock"
flock 9
consumer=$caches/consumer/workspace
bazel() { command bazel --output_base="$caches/consumer/output" --max_idle_secs=60 "$@" 9>&-; }

# Compiling is what a user would notice it by, and that is left to --run.
language=$(grep -- --cxxopt "$root/.bazelrc")
grep -qxF -- "$language" "$root/docs/examples/consumer/.bazelrc" || {
  echo "check_consumer: docs/examples/consumer/.bazelrc lacks this checkout's \"$language\"" >&2
  exit 1
}

rm -rf "$consumer"
mkdir -p "$consumer"
cd "$consumer"
cp -r "$root/docs/examples/consumer/." .
rm -f bazel-*
# Which Bazel, and where Debian keeps it.
cp "$root/.bazelversion" .
mkdir tools
cp "$root/tools/bazel" tools/
sed -i "s|path = \"../../..\"|path = \"$root\"|" WORKSPACE
grep -qF "path = \"$root\"" WORKSPACE
# The machine's settings: a disk cache, for one.
[ ! -f "$root/user.bazelrc" ] || cp "$root/user.bazelrc" .
grep -qs disk_cache user.bazelrc || echo "build --disk_cache=$caches/bazel-disk-cache" >>user.bazelrc
# Here the library is compiled once more: another path is another command to Bazel. What
# an optimizer would do to it is no matter of this check.
echo "build --copt=-O0" >>user.bazelrc

# Labels that the main workspace alone knows would show here.
bazel build --nobuild //:all @tandem//core/... @tandem//datasets/... @tandem//models/... @tandem//parallel/...
if [ "$run" = yes ]; then
  bazel build //:all
  output=$(bazel run //:main)
  echo "$output"
  grep -q 'ddp on data 2 x pipe 1, epoch 2' <<<"$output"
  # The trainer, with a model and a data set that this workspace alone has.
  output=$(bazel run //:my_train -- \
    --model=my_net --dataset=quadrants --nproc_per_node=2 --pipe=2 --save_dir=)
  echo "$output"
  grep -q 'strategy *pipeline' <<<"$output"
fi
echo "check_consumer: tandem works from another workspace"
