"""glog 0.6.0."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def glog():
    source_archive(
        name = "com_github_google_glog",
        debian_package = "google-glog",
        debian_version = "0.6.0-2",
        filename = "google-glog_0.6.0.orig.tar.gz",
        sha256 = "8a83bf982f37bb70825df71a9709fa90ea9f4447fb3c099e1d720a439d88bad6",
        strip_prefix = "glog-0.6.0",
        urls = ["https://github.com/google/glog/archive/v0.6.0.tar.gz"],
    )
