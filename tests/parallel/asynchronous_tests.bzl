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
