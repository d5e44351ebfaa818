"""A cc_test that runs as on several kinds of processor.

LibTorch, oneDNN and MKL choose their kernels by what the processor can do; each can be told, by
environment, to do with less. What a test asks of floating-point numbers must hold with all of them.
"""

load("//:targets.bzl", "tandem_library", "tandem_test")

_PROCESSORS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}

def processor_test(name, deps, data = [], env = {}, elsewhere = "*", tags = [], timeout = None, shard_count = None, nightly = False, **attributes):
    """Declares NAME, and the nightly NAME_on_avx2 and NAME_on_sse: NAME.cc compiled once, three runs.

    Args:
      name: of the test on the processor as it is.
      deps: of all three, as tandem_test has them.
      data: of all three, as are env, tags and timeout.
      env: see data.
      elsewhere: GoogleTest's filter of the two further runs, where some tests would only take time.
      tags: see data.
      timeout: see data.
      shard_count: see data.
      nightly: whether NAME is, too.
      **attributes: of the compilation, as tandem_library has them.
    """
    tandem_library(
        name = name + "_cases",
        testonly = True,
        srcs = [name + ".cc"],
        hdrs = [],
        deps = deps + ["gtest"],
        # Nothing refers to a test.
        alwayslink = True,
        **attributes
    )
    for suffix, settings in [("", {})] + [("_on_" + p, s) for p, s in _PROCESSORS.items()]:
        tandem_test(
            name = name + suffix,
            srcs = [],
            nightly = nightly or bool(settings),
            shard_count = shard_count,
            args = ["--gtest_filter=" + elsewhere] if settings else [],
            data = data,
            env = dict(env, **settings),
            tags = tags,
            timeout = timeout,
            deps = [":" + name + "_cases"],
        )
