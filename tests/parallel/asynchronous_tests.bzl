"""Tests that run once more on asynchronous simulated devices."""

def asynchronous_tests(seeds):
    """Runs test programs of this package on asynchronous devices: what lacks a wait goes wrong in one of the runs.

    Args:
      seeds: for each program, how many times it runs, with other delays each time.
    """
    for program, count in seeds.items():
        native.sh_test(
            name = program[:-len("_test")] + "_async_test",
            srcs = ["//tests/parallel:run_asynchronously.sh"],
            args = [
                "$(rootpath :%s)" % program,
                str(count),
            ],
            data = [":" + program],
            tags = ["cpu:2"],
        )

def sim_nccl_tests(programs):
    """Runs test programs of this package on asynchronous devices, with groups of ranks on the backend sim_nccl.

    Args:
      programs: those that ask TestBackend() (core/testing/thread_ranks.h), and whose tensors then lie on devices.
    """
    for program in programs:
        native.sh_test(
            name = program + "_on_sim_nccl",
            srcs = ["//tests/parallel:run_asynchronously.sh"],
            args = [
                "$(rootpath :%s)" % program,
                "1",
                "'*'",
            ],
            data = [":" + program],
            env = {
                "TANDEM_SIM_ASYNC": "20",
                "TANDEM_TEST_BACKEND": "sim_nccl",
            },
            tags = ["cpu:2"],
        )
