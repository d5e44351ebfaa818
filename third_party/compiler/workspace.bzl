"""The compiler, which is part of the key of what it compiles."""

load(":compiler.bzl", "compiler_repository")

def compiler():
    compiler_repository(name = "compiler")
