"""google-benchmark 1.7.1."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def benchmark():
    source_archive(
        name = "com_github_google_benchmark",
        debian_package = "benchmark",
        debian_version = "1.7.1-1",
        filename = "benchmark_1.7.1.orig.tar.gz",
        sha256 = "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
        strip_prefix = "benchmark-1.7.1",
        urls = ["https://github.com/google/benchmark/archive/v1.7.1.tar.gz"],
    )
