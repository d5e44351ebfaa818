"""Tests of ranks that run once more on simulated NCCL."""

def sim_nccl_test(name, cases = "*", tags = ["cpu:2"], **attributes):
    """Declares NAME_on_sim_nccl: the test NAME again, its groups on the backend sim_nccl.

    For tests that ask TestBackend() (core/testing/thread_ranks.h), and whose tensors then lie on
    simulated devices, asynchronous ones with random delays.

    Args:
      name: of the test.
      cases: GoogleTest's filter, where some cases are of the host's backends alone.
      tags: of this run.
      **attributes: of this run, as sh_test has them.
    """
    native.sh_test(
        name = name + "_on_sim_nccl",
        srcs = ["//core/testing:run_test.sh"],
        args = ["$(location :%s)" % name, "'--gtest_filter=%s'" % cases],
        data = [":" + name],
        env = {
            "TANDEM_SIM_ASYNC": "20",
            "TANDEM_TEST_BACKEND": "sim_nccl",
        },
        tags = tags,
        **attributes
    )
