"""@rules_java, as far as Bazel's own repositories use it."""

load("//third_party/fetch:local.bzl", "written_repository")

def rules_java():
    written_repository(
        name = "rules_java",
        files = {
            Label("//third_party/rules_java:defs.bzl"): "java/defs.bzl",
            Label("//third_party/rules_java:java.BUILD"): "java/BUILD",
        },
    )
