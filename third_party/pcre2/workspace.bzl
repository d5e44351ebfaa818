"""PCRE2 10.42."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def pcre2():
    source_archive(
        name = "pcre2",
        build_file = Label("//third_party/pcre2:pcre2.BUILD"),
        debian_package = "pcre2",
        debian_version = "10.42-1",
        filename = "pcre2_10.42.orig.tar.gz",
        sha256 = "c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f",
        strip_prefix = "pcre2-10.42",
        urls = ["https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz"],
    )
