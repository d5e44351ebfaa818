"""libpng 1.6.39, as Debian packs it."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def libpng():
    source_archive(
        name = "libpng",
        build_file = Label("//third_party/libpng:libpng.BUILD"),
        debian_package = "libpng1.6",
        debian_version = "1.6.39-2+deb12u6",
        filename = "libpng1.6_1.6.39.orig.tar.gz",
        sha256 = "a00e9d2f2f664186e4202db9299397f851aea71b36a35e74910b8820e380d441",
        strip_prefix = "libpng-1.6.39",
    )
