#!/usr/bin/env bash
# Installs what a Debian 12 machine must have before Bazel can build tandem:
# Bazel, C++ compilers (Clang, which compiles it, and GCC, for --config=gcc), pip
# (which fetches LibTorch) and the certificates to download with. Everything else
# is fetched by the build itself.
#   tools/setup.sh
#   tools/setup.sh --cuda          what --config=cuda needs, too; says which driver is here
#   tools/setup.sh --sanitizers    what sanitizers and --config=fuzz need, too: Clang's run-time libraries
# Run it as root, or as a user with sudo. What is there already is left alone:
# a second run does nothing.
set -euo pipefail

fail() { echo "setup: $*" >&2; exit 1; }

cuda=no sanitizers=no
case ${1:-} in
  "") ;;
  --cuda) cuda=yes ;;
  --sanitizers) sanitizers=yes ;;
  *) fail "usage: tools/setup.sh [--cuda|--sanitizers]" ;;
esac

# What runs programs of --config=cuda; a build needs no driver.
say_driver() {
  local driver=/proc/driver/nvidia/version version
  if [ ! -r "$driver" ]; then
    echo "setup: no NVIDIA driver is here. --config=cuda builds all the same; to run, its programs need driver 580 or newer."
    return
  fi
  version=$(grep -om1 '[0-9]\{3\}\.[0-9.]*' "$driver" || echo "of an unknown version")
  echo "setup: NVIDIA's driver is $version; CUDA 13 needs 580 or newer. bazel run --config=cuda //tools:doctor says more."
}
finish() { [ "$cuda" = no ] || say_driver; exit 0; }

[ "$(uname -sm)" = "Linux x86_64" ] ||
  fail "tandem builds on Linux x86_64; this is $(uname -sm)."

# Bazelisk, another compiler and so on count too: only what is missing is
# installed.
missing=()
command -v bazel >/dev/null || missing+=(bazel-bootstrap)
command -v clang >/dev/null || missing+=(clang)
command -v g++ >/dev/null || missing+=(g++)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
command -v git >/dev/null || missing+=(git)
# NVIDIA's cuDNN is linked with it; all else of CUDA the build fetches.
[ "$cuda" = no ] || python3 -c 'import ctypes; ctypes.CDLL("libz.so.1")' 2>/dev/null || missing+=(zlib1g)
# The compiler comes without them where recommended packages are left out.
has_run_time_libraries() {
  command -v clang >/dev/null && [ -e "$(clang -print-file-name=libclang_rt.fuzzer-x86_64.a)" ]
}
[ "$sanitizers" = no ] || has_run_time_libraries || missing+=(libclang-rt-14-dev)

if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: Bazel, C++ compilers, pip, git and certificates are there. Nothing to do."
  finish
fi

id=unknown version=
[ ! -r /etc/os-release ] || { id=$(. /etc/os-release && echo "${ID:-}") version=$(. /etc/os-release && echo "${VERSION_ID:-}"); }
[ "$id" = debian ] ||
  fail "this system is '$id', and only Debian is known here. Provide by hand: ${missing[*]} (Debian's names; Bazel 4.2.3, or Bazelisk)."
[ "$version" = 12 ] ||
  echo "setup: tandem is tested on Debian 12; this is Debian ${version:-of an unknown version}. Trying all the same." >&2

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    fail "installing needs root, and sudo is not here. Run as root: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)

echo "setup: installing with apt-get: ${missing[*]}"
"${apt[@]}" update -qq ||
  fail "apt-get update failed: are the package sources of this machine reachable?"
"${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
  fail "apt-get could not install ${missing[*]} (see above)."
echo "setup: done. Next: bazel run //tools:train"
finish
