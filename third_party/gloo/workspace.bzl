"""gloo's headers, which LibTorch's ProcessGroupGloo.hpp includes and the wheel leaves out."""

load("//third_party/fetch:repositories.bzl", "debian_package")

def gloo():
    debian_package(
        name = "gloo",
        build_file = Label("//third_party/gloo:gloo.BUILD"),
        debian_package = "libgloo-dev",
        debian_version = "0.0~git20220518.5b14351-3",
        sha256 = "80529c9fd8af452faf489e686b94bf87075965c40673803810c4f41634b1e299",
    )
