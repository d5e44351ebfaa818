"""sentencepiece 0.1.97."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def sentencepiece():
    source_archive(
        name = "sentencepiece",
        build_file = Label("//third_party/sentencepiece:sentencepiece.BUILD"),
        debian_package = "sentencepiece",
        debian_version = "0.1.97-3",
        filename = "sentencepiece_0.1.97.orig.tar.gz",
        sha256 = "56430381f45dc6debfd2e0cbde4f039f9499c49ca825af184b0cbf318c17a18f",
        strip_prefix = "sentencepiece-0.1.97",
    )
