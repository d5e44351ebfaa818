"""libdeflate 1.14, as Debian packs it."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def libdeflate():
    source_archive(
        name = "libdeflate",
        build_file = Label("//third_party/libdeflate:libdeflate.BUILD"),
        debian_package = "libdeflate",
        debian_version = "1.14-1",
        filename = "libdeflate_1.14.orig.tar.gz",
        sha256 = "89e7df898c37c3427b0f39aadcf733731321a278771d20fc553f92da8d4808ac",
        strip_prefix = "libdeflate-1.14",
    )
