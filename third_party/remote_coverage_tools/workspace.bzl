"""@remote_coverage_tools, which Bazel 4 asks for on every test."""

load("//third_party/fetch:local.bzl", "written_repository")

def remote_coverage_tools():
    written_repository(
        name = "remote_coverage_tools",
        files = {Label("//third_party/remote_coverage_tools:coverage.BUILD"): "BUILD"},
    )
