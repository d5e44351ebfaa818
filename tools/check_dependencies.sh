#!/usr/bin/env bash
# Checks how dependencies reach a machine (third_party/README.md): the mirror
# folder comes first, then Bazel's repository cache, then the network; and a
# wrong sha256 is an error that names the package.
#   tools/check_dependencies.sh
# Needs the network: it fetches a few small packages into caches of its own.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

work=$(mktemp -d)
finish() {
  for base in "$work"/output-*; do
    [ ! -d "$base" ] || bazel --output_base="$base" --max_idle_secs=30 --host_jvm_args=-Xmx512m shutdown
  done
  chmod -R u+w "$work" && rm -rf "$work"
}
trap finish EXIT

# A workspace that declares what is under test and builds nothing.
mkdir "$work/workspace" "$work/mirror"
cd "$work/workspace"
mkdir tools
cp "$root/tools/bazel" tools/
cp "$root/.bazelversion" .
cat >WORKSPACE <<END
local_repository(name = "tandem", path = "$root")
load("@tandem//third_party:repositories.bzl", "tandem_dependencies")
load("//:cases.bzl", "cases")
tandem_dependencies()
cases()
END
cat >cases.bzl <<'END'
load("@tandem//third_party/fetch:repositories.bzl", "source_archive", "wheels")

def _json(name, version, sha256):
    source_archive(
        name = name,
        build_file = "@tandem//third_party/nlohmann_json:nlohmann_json.BUILD",
        debian_package = "nlohmann-json3",
        debian_version = version,
        filename = "nlohmann-json3_3.11.2.orig.tar.gz",
        sha256 = sha256,
        strip_prefix = "json-3.11.2",
    )

def cases():
    _json("wrong_source", "3.11.2-2", "0" * 64)
    _json("superseded", "3.11.2-0", "d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273")
    wheels(
        name = "wrong_wheel",
        build_file = "@tandem//third_party/clang_format:clang_format.BUILD",
        wheels = {"six-1.16.0-py2.py3-none-any.whl": ["six", "1.16.0", "0" * 64]},
    )
END
touch BUILD

# Settings under which neither apt, pip nor Bazel reaches anything.
echo 'Acquire::http::Proxy "http://127.0.0.1:1"; Acquire::https::Proxy "http://127.0.0.1:1"; Acquire::Retries "0";' >"$work/apt.conf"
no_network=(env APT_CONFIG="$work/apt.conf" http_proxy=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1
  HTTP_PROXY=http://127.0.0.1:1 HTTPS_PROXY=http://127.0.0.1:1 PIP_NO_INDEX=1 PIP_RETRIES=0)

passed=0 failed=0
# expect WHAT PATTERN COMMAND...: PATTERN must be in the output; "ok" asks for
# success instead.
expect() {
  local what=$1 pattern=$2
  shift 2
  local output code=0
  output=$("$@" 2>&1) || code=$?
  if { [ "$pattern" = ok ] && [ "$code" -eq 0 ]; } ||
    { [ "$pattern" != ok ] && grep -qE "$pattern" <<<"$output"; }; then
    echo "PASSED: $what"
    passed=$((passed + 1))
  else
    echo "FAILED: $what: expected '$pattern', found:"
    tail -n 15 <<<"$output"
    failed=$((failed + 1))
  fi
}
# fetch CACHE BASE REPOSITORY OPTION...
fetch() {
  local cache=$1 base=$2 repository=$3
  shift 3
  bazel --output_base="$work/output-$base" --max_idle_secs=30 --host_jvm_args=-Xmx512m fetch --noshow_progress \
    --repository_cache="$work/cache-$cache" "$@" "@$repository//:all"
}
offline() { "${no_network[@]}" bash -c "$(declare -f fetch); work=$work; fetch \"\$@\"" fetch "$@"; }

expect "no network and nothing cached: the error names the package" \
  "nlohmann_json: cannot fetch nlohmann-json3" offline a 1 nlohmann_json
expect "so for wheels" "clang-format: cannot fetch clang_format" offline a 1 clang_format
expect "the registries bring it" ok fetch a 1 nlohmann_json
expect "the registries bring a wheel" ok fetch a 1 clang_format
expect "another output base, no network: from the repository cache" ok offline a 2 nlohmann_json
expect "so for wheels" ok offline a 2 clang_format

expect "a wrong pin of a source archive names it" "wrong_source: wrong sha256 of nlohmann-json3_3.11.2" fetch b 1 wrong_source
expect "a wrong pin of a wheel names it" "six: cannot fetch|six: wrong sha256" fetch b 1 wrong_wheel
expect "a superseded version is told" "superseded nlohmann-json3 3.11.2-0; took" fetch c 1 superseded
expect "and is an error when asked for" "TANDEM_STRICT=1 asks" fetch d 3 superseded --repo_env=TANDEM_STRICT=1

mirror=$work/mirror
json=nlohmann-json3_3.11.2.orig.tar.gz
cp "$work"/cache-a/content_addressable/sha256/d69f9deb*/file "$mirror/$json"
expect "a mirror folder serves without network or cache" ok \
  offline e 4 nlohmann_json --repo_env=TANDEM_MIRROR="$mirror"
expect "and keeps its file" ok test -s "$mirror/$json"
echo damaged >>"$mirror/$json"
expect "it is read first, and a damaged file names the package" \
  "nlohmann_json: wrong sha256 of $json from the mirror folder" \
  fetch a 5 nlohmann_json --repo_env=TANDEM_MIRROR="$mirror"
expect "a mirror that is no folder is told" "not the absolute path of a folder" \
  fetch a 6 nlohmann_json --repo_env=TANDEM_MIRROR=relative
expect "--override_repository needs no download" ok \
  offline f 7 nlohmann_json --override_repository=nlohmann_json="$work/output-1/external/nlohmann_json"
expect "a toolkit that is none is told" "TANDEM_CUDA_TOOLKIT is $work, where there is no bin/nvcc" \
  fetch a 8 cuda_toolkit --repo_env=TANDEM_CUDA_TOOLKIT="$work"

echo "check_dependencies: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
