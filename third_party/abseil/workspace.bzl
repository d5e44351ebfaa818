"""Abseil 20220623.1 (LTS), as Debian packs it: no URL has these bytes."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def abseil():
    source_archive(
        name = "com_google_absl",
        debian_package = "abseil",
        debian_version = "20220623.1-1+deb12u2",
        filename = "abseil_20220623.1.orig.tar.gz",
        sha256 = "abfe2897f3a30edaa74bc34365afe3c2a3cd012091a97dc7e008f7016adcd5fe",
        strip_prefix = "abseil-20220623.1",
    )
