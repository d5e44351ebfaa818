"""protozero 1.7.1: protocol buffers written and read by field numbers, in headers alone."""

load("//third_party/fetch:repositories.bzl", "debian_package")

def protozero():
    debian_package(
        name = "protozero",
        build_file = Label("//third_party/protozero:protozero.BUILD"),
        debian_package = "libprotozero-dev",
        debian_version = "1.7.1-1",
        sha256 = "a7091f91d6c35608ee3ce6b36f4656cd7d1266539cf02c253927bd1a978647ac",
    )
