"""The King James Bible of 1611 (public domain): 4.4 MB of English, to train on and to test with."""

load("//third_party/fetch:repositories.bzl", "debian_package")

def king_james_bible():
    debian_package(
        name = "king_james_bible",
        architecture = "all",
        build_file = Label("//third_party/king_james_bible:king_james_bible.BUILD"),
        debian_package = "bible-kjv-text",
        debian_version = "4.38",
        sha256 = "d61b6aad4c51ba9e2800b825325fa6a09e99a0d02a9bb6dc4724fcc4995a1b7a",
    )
