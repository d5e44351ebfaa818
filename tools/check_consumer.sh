#!/usr/bin/env bash
# Builds and runs docs/examples/consumer, a workspace that uses tandem as an
# external repository, as its users would: in a copy that knows this checkout by
# its path, with an output base of its own.
#   tools/check_consumer.sh
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

work=$(mktemp -d)
startup=(--output_base="$work/output" --max_idle_secs=60)
finish() {
  local server
  server=$(cat "$work/output/server/server.pid.txt" 2>/dev/null) || server=
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    # It removes files of its own as it ends.
    for _ in {1..100}; do
      kill -0 "$server" 2>/dev/null || break
      sleep 0.1
    done
  fi
  # Bazel's output folders are read-only.
  chmod -R u+w "$work" || true
  rm -rf "$work" || true
}
trap finish EXIT

mkdir "$work/consumer"
cd "$work/consumer"
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
grep -qs disk_cache user.bazelrc ||
  echo "build --disk_cache=${XDG_CACHE_HOME:-$HOME/.cache}/tandem/bazel-disk-cache" >>user.bazelrc
# Here the library is compiled once more: another path is another command to Bazel. What
# an optimizer would do to it is no matter of this check.
echo "build --copt=-O0" >>user.bazelrc

bazel "${startup[@]}" build //:all
# Labels that the main workspace alone knows would show here: everything is
# analysed, nothing more is compiled.
bazel "${startup[@]}" build --nobuild \
  @tandem//core/... @tandem//datasets/... @tandem//models/... @tandem//parallel/...
output=$(bazel "${startup[@]}" run //:main)
echo "$output"
grep -q 'ddp on data 2 x pipe 1, epoch 2' <<<"$output"
# The trainer, with a model and a data set that this workspace alone has.
output=$(bazel "${startup[@]}" run //:my_train -- \
  --model=my_net --dataset=quadrants --nproc_per_node=2 --pipe=2 --save_dir=)
echo "$output"
grep -q 'strategy *pipeline' <<<"$output"
echo "check_consumer: tandem works from another workspace"
