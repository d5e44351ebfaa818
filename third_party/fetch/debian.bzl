"""Debian's package registry as an origin of files: sources and binary packages."""

def _bring(ctx, origin):
    result = ctx.execute(
        [
            "bash",
            str(ctx.path(Label("//third_party/fetch:debian.sh"))),
            origin.kind,
            origin.name,
            origin.version,
            origin.pattern,
            str(ctx.path(origin.folder)),
        ],
        environment = {"TANDEM_STRICT": ctx.os.environ.get("TANDEM_STRICT", "")},
        timeout = 900,
    )
    place = "Debian's package %s %s" % (origin.name, origin.version)
    if result.return_code != 0:
        return struct(path = None, place = place, error = "%s: %s" % (place, result.stderr))
    if result.stderr:
        # buildifier: disable=print
        print(ctx.name + ": " + result.stderr.strip())
    return struct(path = ctx.path(result.stdout.strip()), place = place, error = None)

def debian_source(name, version, pattern):
    """Origin: the upstream tarball (`pattern`: its file name) of a Debian source package."""
    return struct(bring = _bring, kind = "source", folder = "_debian", name = name, version = version, pattern = pattern)

def debian_binary(name, version):
    """Origin: a Debian binary package (.deb)."""
    return struct(bring = _bring, kind = "binary", folder = "_debian", name = name, version = version, pattern = name + "_*.deb")
