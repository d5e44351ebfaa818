"""Counts what `bazel test` did: prints "PASSED FAILED" on stdout, names of failures on stderr.

  count_results.py EVENTS EXIT_CODE [--limit=SECONDS]

EVENTS is the file of --build_event_json_file: one JSON object a line. A test
counts once, however many runs or shards it has. A target that does not build or
cannot be loaded counts as failed, and so does a failure of Bazel's that names
no target. With --limit the slowest runs are listed on stderr, a test one run or
shard of which took longer is named, and one that took more than twice the limit
fails: a slow or busy machine counts double.
"""

import json
import sys

_PASSED = ("PASSED", "FLAKY")
# Not those of what a failed target depends on, such as a missing source file.
_TARGET_IDS = ("targetCompleted", "targetConfigured", "testSummary")
# How many of the slowest runs are listed.
_LISTED = 20
# What a slow or busy machine makes of a test's time.
_SLOW_MACHINE = 2


def _label(identity):
    for kind in _TARGET_IDS:
        if kind in identity:
            return identity[kind]["label"]
    if "pattern" in identity:
        return " ".join(identity["pattern"].get("pattern", [])) or "the command's targets"
    return None


def count(events):
    """Returns (passed labels, failed labels)."""
    passed, failed = set(), set()
    for event in events:
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


def runs(events):
    """(seconds, label, shard or 0, where its result is from) of each run, the slowest first; a cached one took what it took."""
    found = []
    for event in events:
        if "testResult" in event and "testResult" in event["id"]:
            identity, result = event["id"]["testResult"], event["testResult"]
            cached = result.get("cachedLocally") or result.get("executionInfo", {}).get("cachedRemotely")
            seconds = int(result.get("testAttemptDurationMillis", 0)) / 1000
            found.append((seconds, identity["label"], int(identity.get("shard", 0)), "from the cache" if cached else "run"))
    return sorted(found, reverse=True)


def list_slowest(found, limit):
    """Prints them, and what is over the limit; returns the labels of what is over it on a slow machine, too."""
    print("The %d slowest tests:" % min(_LISTED, len(found)), file=sys.stderr)
    for seconds, label, shard, source in found[:_LISTED]:
        print("%7.1f s  %s%s (%s)" % (seconds, label, ", shard %d" % shard if shard > 1 else "", source), file=sys.stderr)
    longest = {}
    for seconds, label, _, _ in reversed(found):
        longest[label] = seconds
    failed = {label for label, seconds in longest.items() if seconds > limit * _SLOW_MACHINE}
    for label in sorted(label for label, seconds in longest.items() if seconds > limit):
        print("%s: %s took %.1f s and may take %g: shorten it, give it a shard_count, or make it nightly "
              "(tests/README.md)" % ("TOO SLOW" if label in failed else "SLOW", label, longest[label], limit), file=sys.stderr)
    return failed


def main():
    path, exit_code = sys.argv[1], int(sys.argv[2])
    limits = [float(each.split("=")[1]) for each in sys.argv[3:] if each.startswith("--limit=")]
    try:
        with open(path, encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines]
        passed, failed = count(events)
        slow = list_slowest(runs(events), limits[0]) if limits else set()
    except (OSError, ValueError) as error:
        passed, failed, slow = set(), {"Bazel's event file: %s" % error}, set()
    if exit_code != 0 and not failed:
        failed = {"bazel, with exit code %d" % exit_code}
    for label in sorted(failed):
        print("FAILED: " + label, file=sys.stderr)
    print(len(passed - slow), len(failed | slow))


main()
