"""@rules_cc, as far as dependencies use it. Released versions are too new for Bazel 4."""

load("//third_party/fetch:local.bzl", "written_repository")

def rules_cc():
    written_repository(
        name = "rules_cc",
        files = {
            Label("//third_party/rules_cc:cc.BUILD"): "cc/BUILD",
            Label("//third_party/rules_cc:defs.bzl"): "cc/defs.bzl",
        },
    )
