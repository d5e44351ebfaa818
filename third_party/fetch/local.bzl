"""Repositories that Bazel or a dependency asks for and that need no download."""

def _written_repository_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)
    for label, path in ctx.attr.files.items():
        ctx.symlink(label, path)

written_repository = repository_rule(
    implementation = _written_repository_impl,
    doc = "A repository whose files stand in this project: label -> path there.",
    attrs = {"files": attr.label_keyed_string_dict(mandatory = True)},
)
