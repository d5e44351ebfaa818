"""The two suites, and further runs of test programs.

`bazel test //...` runs the presubmit, //tests:full everything (tests/README.md).
"""

# What only //tests:full has. A tag that options filter by would leave out a test that is asked for by name as well.
NIGHTLY = [
    "manual",
    "nightly",
]

def _further_run(name, program, arguments, **attributes):
    native.sh_test(
        name = name,
        srcs = ["//tests:run_program.sh"],
        args = ["$(rootpath :%s)" % program] + ["'%s'" % each for each in arguments],
        data = [":" + program] + attributes.pop("data", []),
        **attributes
    )

# Ranks that are threads, and operators' threads beside them, are too many for a small machine.
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}

def smoke_test(program, filter, attributes):
    """Runs some tests of a nightly program in the presubmit, as PROGRAM_smoke.

    Args:
      program: its name.
      filter: GoogleTest's, of those tests.
      attributes: the program's, whose data, env, shards and tags it has.
    """
    kept = {name: value for name, value in attributes.items() if name in ["data", "env", "shard_count", "tags"]}
    _further_run(program + "_smoke", program, [filter], **kept)

def asynchronous_tests(seeds, smoke = {}):
    """Runs test programs of this package on asynchronous devices: what lacks a wait goes wrong in one of the runs.

    Args:
      seeds: for each program, for GoogleTest's filters of tests, how many times these run, with other delays each time.
      smoke: for some programs, GoogleTest's filter of the tests that the presubmit runs once.
    """
    for program, counts in seeds.items():
        _further_run(
            program + "_asynchronously",
            program,
            [each for filter, count in counts.items() for each in [filter, count]],
            env = _ONE_THREAD,
            timeout = "long",
            tags = NIGHTLY,
        )
    for program, filter in smoke.items():
        _further_run(program + "_smoke_asynchronously", program, [filter, 1], env = _ONE_THREAD)

def _sharded(shards, program):
    return {"shard_count": shards[program]} if program in shards else {}

def sim_nccl_tests(programs = [], filters = {}, themselves = [], exceptions = {}, smoke = {}, shards = {}):
    """Runs test programs of this package on asynchronous devices, with groups of ranks on the backend sim_nccl.

    All files of tests of the package are named, by themselves or by their program, in one way or another:
    tools/check_sim_nccl.py looks.

    Args:
      programs: those that ask TestBackend() (core/testing/thread_ranks.h), and whose tensors then lie on devices, or
        whose jobs ask TestBackendFlags() (tests/e2e/train/runs.h).
      filters: for some of them, which of their tests are run: those of a long one that say most; a list of patterns or
        GoogleTest's string. Else all.
      themselves: those that name sim_nccl in their source, and run on it as they are.
      exceptions: by the reason, those that have nothing to do there.
      smoke: for some programs, GoogleTest's filter of the tests that the presubmit runs.
      shards: for some programs, and for PROGRAM_smoke, in how many shards they run.
    """
    for program in themselves + [each for some in exceptions.values() for each in some]:
        if program in programs:
            fail(program + " is an exception, or runs on sim_nccl by itself, and is to run on it as well")
    env = {
        "TANDEM_SIM_ASYNC": "20",
        "TANDEM_TEST_BACKEND": "sim_nccl",
    }
    env.update(_ONE_THREAD)
    for program in programs:
        filter = filters.get(program, "*")
        _further_run(
            program + "_on_sim_nccl",
            program,
            [":".join(filter) if type(filter) == "list" else filter, 1],
            env = env,
            timeout = "long",
            tags = NIGHTLY,
            **_sharded(shards, program)
        )
    for program, filter in smoke.items():
        _further_run(
            program + "_smoke_on_sim_nccl",
            program,
            [filter, 1],
            env = env,
            **_sharded(shards, program + "_smoke")
        )

def full_suite():
    """All tests of this package but those that need a GPU, as :full: last in its BUILD file (tools/check_suites.sh)."""
    native.test_suite(
        name = "full",
        tags = ["manual"],
        tests = [
            ":" + name
            for name, rule in native.existing_rules().items()
            if rule["kind"].endswith("_test") and "cuda" not in rule["tags"]
        ],
        visibility = ["//tests:__pkg__"],
    )
