"""How a pinned file reaches this machine.

Every dependency is one file with a sha256. `fetch` looks for it in this order
and stops at the first place that has it:

1. the mirror folder named by TANDEM_MIRROR (a site without internet fills it
   once: third_party/README.md),
2. Bazel's repository cache, where step 3 leaves every file that it brought, so
   that a second build needs no network,
3. its origins: Debian's package registry, PyPI, or the project's own URL.

Whatever the place, the bytes must have the pinned sha256; else the build stops
with an error that names the package.
"""

# Repository rules that call `fetch` list these as their `environ`.
FETCH_ENVIRON = ["TANDEM_MIRROR", "TANDEM_STRICT"]

def _sha256(ctx, path):
    result = ctx.execute(["sha256sum", str(path)])
    if result.return_code != 0:
        fail("cannot read %s: %s" % (path, result.stderr))
    return result.stdout.split(" ")[0]

def _check(ctx, package, path, expected, place):
    found = _sha256(ctx, path)
    if found != expected:
        fail(("\n\n%s: wrong sha256 of %s from %s\n" +
              "  expected %s\n  found    %s\n" +
              "The file is damaged, or its publisher replaced it. Nothing of it was used. " +
              "third_party/README.md tells how to provide the right file in a mirror folder and how to update a pin.\n") %
             (package, path.basename, place, expected, found))

def _from_mirror(ctx, package, filename, sha256):
    folder = ctx.os.environ.get("TANDEM_MIRROR", "")
    if not folder:
        return False
    if not folder.startswith("/") or not ctx.path(folder).exists:
        fail(("\n\n%s: TANDEM_MIRROR is %s, which is not the absolute path of a folder here. " +
              "Give --repo_env=TANDEM_MIRROR=/absolute/path, or leave it out.\n") % (package, folder))
    path = ctx.path(folder + "/" + filename)
    if not path.exists:
        return False
    _check(ctx, package, path, sha256, "the mirror folder " + folder)
    ctx.symlink(path, filename)
    return True

def _from_cache(ctx, filename, sha256):
    # Without a URL, Bazel asks the repository cache and nothing else.
    return ctx.download([], filename, sha256 = sha256, allow_fail = True).success

def fetch(ctx, package, filename, sha256, origins):
    """Brings the pinned file `filename` into the repository being built.

    Args:
      ctx: the repository context.
      package: the name that errors use.
      filename: the file's name, here and in a mirror folder.
      sha256: of the file.
      origins: where to bring it from, tried in order until one answers without an error.
        An origin is a struct with a function `bring`(ctx, origin) -> struct(path, place, error)
        and the folder that it works in.

    Returns:
      the path of the file.
    """
    if _from_mirror(ctx, package, filename, sha256) or _from_cache(ctx, filename, sha256):
        return ctx.path(filename)
    errors = []
    for origin in origins:
        ctx.report_progress("fetching " + package)
        brought = origin.bring(ctx, origin)
        if brought.error:
            errors.append(brought.error.strip())
            ctx.delete(origin.folder)
            continue
        _check(ctx, package, brought.path, sha256, brought.place)

        # By way of a URL, so that the file lands in the repository cache too.
        ctx.download("file://" + str(brought.path), filename, sha256 = sha256)
        ctx.delete(origin.folder)
        return ctx.path(filename)
    fail(("\n\n%s: cannot fetch %s\n  %s\nWithout internet, put the file into a folder and name it: " +
          "--repo_env=TANDEM_MIRROR=/that/folder (third_party/README.md).\n") %
         (package, filename, "\n  ".join(errors)))
