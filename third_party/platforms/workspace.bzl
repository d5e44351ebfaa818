"""Bazel's platforms 0.0.2: Abseil asks for wasm32, which Bazel 4's own has not."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def platforms():
    source_archive(
        name = "platforms",
        debian_package = "bazel-platforms",
        debian_version = "0.0.2-2",
        filename = "bazel-platforms_0.0.2.orig.tar.xz",
        sha256 = "2e582a0841457e38ba2b263c7021bc57241f6934f86df8a1b5c5ae32169bf490",
        strip_prefix = "platforms-0.0.2",
    )
