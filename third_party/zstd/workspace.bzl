"""Zstandard 1.5.4, as Debian packs it: no URL has these bytes."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def zstd():
    source_archive(
        name = "zstd",
        build_file = Label("//third_party/zstd:zstd.BUILD"),
        debian_package = "libzstd",
        debian_version = "1.5.4+dfsg2-5",
        filename = "libzstd_1.5.4+dfsg2.orig.tar.xz",
        sha256 = "8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953",
        strip_prefix = "zstd-1.5.4",
    )
