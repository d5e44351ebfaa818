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

def sim_nccl_tests(programs = [], filters = {}, themselves = [], exceptions = {}):
    """Runs test programs of this package on asynchronous devices, with groups of ranks on the backend sim_nccl.

    All of the package's are named, in one way or another: tools/check_sim_nccl.py looks.

    Args:
      programs: those that ask TestBackend() (core/testing/thread_ranks.h), and whose tensors then lie on devices, or
        whose jobs ask TestBackendFlags() (tests/e2e/train/runs.h).
      filters: for some of them, which of their tests are run: those of a long one that say most. Else all.
      themselves: those that name sim_nccl in their source, and run on it as they are.
      exceptions: by the reason, those that have nothing to do there.
    """
    for program in themselves + [each for some in exceptions.values() for each in some]:
        if program in programs:
            fail(program + " is an exception, or runs on sim_nccl by itself, and is to run on it as well")
    for program in programs:
        native.sh_test(
            name = program + "_on_sim_nccl",
            srcs = ["//tests/parallel:run_asynchronously.sh"],
            args = [
                "$(rootpath :%s)" % program,
                "1",
                "'%s'" % filters.get(program, "*"),
            ],
            data = [":" + program],
            env = {
                "TANDEM_SIM_ASYNC": "20",
                "TANDEM_TEST_BACKEND": "sim_nccl",
            },
            tags = ["cpu:2"],
        )
