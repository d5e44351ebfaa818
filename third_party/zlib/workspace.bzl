"""zlib 1.2.13, as Debian packs it: no URL has these bytes."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def zlib():
    source_archive(
        name = "zlib",
        build_file = Label("//third_party/zlib:zlib.BUILD"),
        debian_package = "zlib",
        debian_version = "1:1.2.13.dfsg-1",
        filename = "zlib_1.2.13.dfsg.orig.tar.bz2",
        sha256 = "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1",
        strip_prefix = "zlib-1.2.13.dfsg",
    )
