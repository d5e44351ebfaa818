"""PyTorch's own C++ tests of c10d, of the source of 1.13.1: the wheels have none."""

load("//third_party/fetch:source_files.bzl", "source_files")

def pytorch_tests():
    source_files(
        name = "pytorch_tests",
        build_file = Label("//third_party/pytorch_tests:pytorch_tests.BUILD"),
        debian_package = "pytorch",
        debian_version = "1.13.1+dfsg-4",
        edits = {
            Label("//third_party/pytorch_tests:process_group_gloo_test.sed"): "ProcessGroupGlooTest.cpp",
        },
        filename = "pytorch_1.13.1+dfsg.orig.tar.xz",
        folder = "pytorch-1.13.1/test/cpp/c10d",
        sha256 = "d0355588b8528566d477e6ebf1b4d9d036a6fd75711339f66b27472ce5879dc7",
    )
