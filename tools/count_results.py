"""Counts what `bazel test` did: prints "PASSED FAILED" on stdout, names of failures on stderr.

  count_results.py EVENTS EXIT_CODE

EVENTS is the file of --build_event_json_file: one JSON object a line. A test
counts once, however many runs or shards it has. A target that does not build or
cannot be loaded counts as failed, and so does a failure of Bazel's that names
no target.
"""

import json
import sys

_PASSED = ("PASSED", "FLAKY")
# Not those of what a failed target depends on, such as a missing source file.
_TARGET_IDS = ("targetCompleted", "targetConfigured", "testSummary")


def _label(identity):
    for kind in _TARGET_IDS:
        if kind in identity:
            return identity[kind]["label"]
    if "pattern" in identity:
        return " ".join(identity["pattern"].get("pattern", [])) or "the command's targets"
    return None


def count(lines):
    """Returns (passed labels, failed labels)."""
    passed, failed = set(), set()
    for line in lines:
        event = json.loads(line)
        label = _label(event["id"])
        if label is None:
            continue
        if "testSummary" in event:
            good = event["testSummary"]["overallStatus"] in _PASSED
            (passed if good else failed).add(label)
        elif "completed" in event and not event["completed"].get("success"):
            failed.add(label)
        elif "aborted" in event and event["aborted"].get("reason") != "SKIPPED":
            failed.add(label)
    return passed - failed, failed


def main():
    path, exit_code = sys.argv[1], int(sys.argv[2])
    try:
        with open(path, encoding="utf-8") as lines:
            passed, failed = count(lines)
    except (OSError, ValueError) as error:
        passed, failed = set(), {"Bazel's event file: %s" % error}
    if exit_code != 0 and not failed:
        failed = {"bazel, with exit code %d" % exit_code}
    for label in sorted(failed):
        print("FAILED: " + label, file=sys.stderr)
    print(len(passed), len(failed))


main()
