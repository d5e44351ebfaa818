"""gflags 2.2.2, which glog is built with."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def gflags():
    source_archive(
        name = "com_github_gflags_gflags",
        debian_package = "gflags",
        debian_version = "2.2.2-2",
        filename = "gflags_2.2.2.orig.tar.gz",
        sha256 = "34af2f15cf7367513b352bdcd2493ab14ce43692d2dcd9dfc499492966c64dcf",
        strip_prefix = "gflags-2.2.2",
        urls = ["https://github.com/gflags/gflags/archive/v2.2.2.tar.gz"],
    )
