"""GoogleTest and GoogleMock 1.12.1."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def googletest():
    source_archive(
        name = "com_google_googletest",
        debian_package = "googletest",
        debian_version = "1.12.1-0.2",
        filename = "googletest_1.12.1.orig.tar.gz",
        sha256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
        strip_prefix = "googletest-release-1.12.1",
        urls = ["https://github.com/google/googletest/archive/release-1.12.1.tar.gz"],
    )
