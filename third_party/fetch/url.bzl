"""The publisher's own URL as an origin of files."""

def _bring(ctx, origin):
    name = origin.folder + "/" + origin.url.split("/")[-1]
    if not ctx.download(origin.url, name, sha256 = origin.sha256, allow_fail = True).success:
        return struct(path = None, place = origin.url, error = origin.url + ": not reached, or wrong sha256")
    return struct(path = ctx.path(name), place = origin.url, error = None)

def url_origin(url, sha256):
    """Origin: a plain download."""
    return struct(bring = _bring, folder = "_url", url = url, sha256 = sha256)
