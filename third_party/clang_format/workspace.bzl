"""clang-format 14.0.6, so that every machine formats alike."""

load("//third_party/fetch:repositories.bzl", "wheels")

def clang_format():
    wheels(
        name = "clang_format",
        build_file = Label("//third_party/clang_format:clang_format.BUILD"),
        members = ["clang_format/data/bin/clang-format"],
        wheels = {
            "clang_format-14.0.6-py2.py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.whl": [
                "clang-format",
                "14.0.6",
                "d7c1c5e404c58e55f0170f01b3c5611dce6c119e62b5d1020347e0ad97d5a047",
            ],
        },
    )
