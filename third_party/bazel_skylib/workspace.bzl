"""bazel-skylib 1.0.3, as Debian packs it; Abseil loads it."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def bazel_skylib():
    source_archive(
        name = "bazel_skylib",
        debian_package = "bazel-skylib",
        debian_version = "1.0.3-2",
        filename = "bazel-skylib_1.0.3.orig.tar.xz",
        sha256 = "b22f0f38d9a1ac565fce8a43df3d284f6b8e5e8775bda54b5cb687bed46b6ea4",
        strip_prefix = "bazel-skylib-1.0.3",
    )
