"""A cc_test that runs as on several kinds of processor.

LibTorch, oneDNN and MKL choose their kernels by what the processor can do; each can be told, by
environment, to do with less. What a test asks of floating-point numbers must hold with all of them.
"""

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

def processor_test(name, srcs, deps, copts = [], data = [], env = {}, elsewhere = "*", **kwargs):
    """Declares NAME, NAME_on_avx2 and NAME_on_sse: one compilation, three runs.

    Args:
      name: of the test on the processor as it is.
      srcs: of all three, as are deps (without gtest_main), copts, data and env.
      deps: see srcs.
      copts: see srcs.
      data: see srcs.
      env: see srcs.
      elsewhere: GoogleTest's filter of the two further runs, where some tests would only take time.
      **kwargs: of each cc_test.
    """
    native.cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        copts = copts,
        deps = deps + ["@com_google_googletest//:gtest"],
        # Nothing refers to a test.
        alwayslink = True,
    )
    for suffix, settings in [("", {})] + [("_on_" + p, s) for p, s in _PROCESSORS.items()]:
        native.cc_test(
            name = name + suffix,
            args = ["--gtest_filter=" + elsewhere] if settings else [],
            data = data,
            env = dict(env, **settings),
            deps = [
                name + "_cases",
                "@com_google_googletest//:gtest_main",
            ],
            **kwargs
        )
