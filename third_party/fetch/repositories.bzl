"""Repository rules for the kinds of files that dependencies come in."""

load("//third_party/fetch:debian.bzl", "debian_binary", "debian_source")
load("//third_party/fetch:fetch.bzl", "FETCH_ENVIRON", "fetch")
load("//third_party/fetch:pypi.bzl", "pypi_wheel")
load("//third_party/fetch:url.bzl", "url_origin")

def add_build_file(ctx):
    """Makes the folder of `ctx` a repository, with the BUILD file that its attribute names."""
    if ctx.attr.build_file:
        ctx.symlink(ctx.attr.build_file, "BUILD.bazel")
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)

def _source_archive_impl(ctx):
    origins = [debian_source(ctx.attr.debian_package, ctx.attr.debian_version, ctx.attr.filename)]
    origins += [url_origin(url, ctx.attr.sha256) for url in ctx.attr.urls]
    archive = fetch(ctx, ctx.name, ctx.attr.filename, ctx.attr.sha256, origins)
    ctx.extract(archive, stripPrefix = ctx.attr.strip_prefix)
    ctx.delete(archive)
    add_build_file(ctx)

source_archive = repository_rule(
    implementation = _source_archive_impl,
    doc = "A release tarball: Debian's copy, or the same bytes from the project's URL.",
    attrs = {
        "build_file": attr.label(doc = "BUILD file, where the tarball brings none"),
        "debian_package": attr.string(mandatory = True),
        "debian_version": attr.string(mandatory = True),
        "filename": attr.string(mandatory = True),
        "sha256": attr.string(mandatory = True),
        "strip_prefix": attr.string(mandatory = True),
        "urls": attr.string_list(),
    },
    environ = FETCH_ENVIRON,
)

def _debian_package_impl(ctx):
    name = ctx.attr.debian_package
    filename = "%s_%s_%s.deb" % (name, ctx.attr.debian_version, ctx.attr.architecture)
    package = fetch(
        ctx,
        ctx.name,
        filename,
        ctx.attr.sha256,
        [debian_binary(name, ctx.attr.debian_version)],
    )
    result = ctx.execute(["dpkg-deb", "-x", str(package), "."])
    if result.return_code != 0:
        fail("\n\n%s: cannot unpack %s with dpkg-deb: %s\n" % (ctx.name, filename, result.stderr))
    ctx.delete(package)
    add_build_file(ctx)

debian_package = repository_rule(
    implementation = _debian_package_impl,
    doc = "What a Debian binary package holds.",
    attrs = {
        "architecture": attr.string(default = "amd64"),
        "build_file": attr.label(mandatory = True),
        "debian_package": attr.string(mandatory = True),
        "debian_version": attr.string(mandatory = True),
        "sha256": attr.string(mandatory = True),
    },
    environ = FETCH_ENVIRON,
)

def unpack_wheel(ctx, filename, pin, members):
    """Unpacks of a wheel what matches the patterns `members`; `pin` is [package, version, sha256]."""
    name, version, sha256 = pin
    wheel = fetch(ctx, name, filename, sha256, [pypi_wheel(name, version, sha256)])
    unpack = ctx.path(Label("//third_party/fetch:unpack_wheel.py"))
    result = ctx.execute(["python3", str(unpack), str(wheel)] + members, timeout = 1800)
    if result.return_code != 0:
        fail("\n\n%s: cannot unpack %s: %s\n" % (name, filename, result.stderr))
    ctx.delete(wheel)

def _wheel_impl(ctx):
    for filename, pin in ctx.attr.wheels.items():
        unpack_wheel(ctx, filename, pin, ctx.attr.members)
    add_build_file(ctx)

wheels = repository_rule(
    implementation = _wheel_impl,
    doc = "Members of one or more PyPI wheels.",
    attrs = {
        "build_file": attr.label(mandatory = True),
        "members": attr.string_list(doc = "glob patterns of what to unpack"),
        "wheels": attr.string_list_dict(doc = "file name -> [package, version, sha256]"),
    },
    environ = FETCH_ENVIRON,
)
