"""Libraries and tests of this workspace, each written down in a line or two."""

load("//third_party/libtorch:precompiled_header.bzl", "HEAVY_HEADERS")

# What dependencies are called here; "absl/strings" is Abseil's target of that path.
_DEPENDENCIES = {
    "glog": "@com_github_google_glog//:glog",
    "gtest": "@com_google_googletest//:gtest",
    "json": "@nlohmann_json//:json",
    "torch": "@libtorch//:torch",
}

def _labels(deps):
    return [
        "@com_google_absl//" + dep if dep.startswith("absl/") else _DEPENDENCIES.get(dep, dep)
        for dep in deps
    ]

def _heavy(attributes):
    """Compiles with LibTorch's heavy headers precompiled (docs/building.md)."""
    if not attributes.pop("heavy_headers", False):
        return
    attributes["copts"] = HEAVY_HEADERS + attributes.get("copts", [])
    attributes["deps"] = attributes["deps"] + ["//third_party/libtorch:heavy_headers"]

def tandem_library(name, deps = [], public = False, **attributes):
    """A cc_library of NAME.h and, where there is one, NAME.cc.

    Args:
      name: its name, and the stem of its files.
      deps: labels; dependencies by their short names.
      public: whether other workspaces and floors may use it; else the package's default decides.
      **attributes: cc_library's. `heavy_headers = True` precompiles LibTorch's.
    """
    attributes["deps"] = _labels(deps)
    if "hdrs" not in attributes:
        attributes["hdrs"] = [name + ".h"]
    if "srcs" not in attributes:
        attributes["srcs"] = native.glob([name + ".cc"])
    if public:
        attributes["visibility"] = ["//visibility:public"]
    _heavy(attributes)
    native.cc_library(name = name, **attributes)

def tandem_test(name, deps = [], **attributes):
    """A cc_test of NAME.cc, with GoogleTest's main.

    Args:
      name: its name, and the stem of its file.
      deps: labels; dependencies by their short names.
      **attributes: cc_test's. `heavy_headers = True` precompiles LibTorch's.
    """
    attributes["deps"] = _labels(deps) + ["@com_google_googletest//:gtest_main"]
    if "srcs" not in attributes:
        attributes["srcs"] = [name + ".cc"]
    _heavy(attributes)
    native.cc_test(name = name, **attributes)
