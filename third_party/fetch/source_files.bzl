"""Repository rule for a part of a release tarball, with edits."""

load("//third_party/fetch:debian.bzl", "debian_source")
load("//third_party/fetch:fetch.bzl", "FETCH_ENVIRON", "fetch")

def _source_files_impl(ctx):
    origins = [debian_source(ctx.attr.debian_package, ctx.attr.debian_version, ctx.attr.filename)]
    archive = fetch(ctx, ctx.name, ctx.attr.filename, ctx.attr.sha256, origins)
    ctx.extract(archive, stripPrefix = ctx.attr.folder)
    ctx.delete(archive)
    for script, path in ctx.attr.edits.items():
        result = ctx.execute(["sed", "-E", "-i", "-f", str(ctx.path(script)), path])
        if result.return_code != 0:
            fail("\n\n%s: cannot edit %s: %s\n" % (ctx.name, path, result.stderr))
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)

source_files = repository_rule(
    implementation = _source_files_impl,
    doc = "One folder of a release tarball that Debian has.",
    attrs = {
        "build_file": attr.label(mandatory = True),
        "debian_package": attr.string(mandatory = True),
        "debian_version": attr.string(mandatory = True),
        "edits": attr.label_keyed_string_dict(doc = "sed script -> the file that it changes"),
        "filename": attr.string(mandatory = True),
        "folder": attr.string(mandatory = True, doc = "in the tarball; the repository's root"),
        "sha256": attr.string(mandatory = True),
    },
    environ = FETCH_ENVIRON,
)
