// A test program's tests side by side, each in a process of its own. For tests
// that mostly wait: for a timeout, for a job to notice a death.

#ifndef TANDEM_TESTS_E2E_SIDE_BY_SIDE_H_
#define TANDEM_TESTS_E2E_SIDE_BY_SIDE_H_

namespace tandem {

// What main() does in place of InitGoogleTest and RUN_ALL_TESTS: runs the tests
// that GoogleTest's flags and environment (a shard, too) select, `at_once` of
// them at a time,
// each as this program with a filter for the one. Says when each begins and how
// it ended, prints all that a failed one wrote, and returns 0 only if there
// were tests and none failed.
//
// Nothing is shared between the tests: SetUpTestSuite runs for each. No XML
// file is written, so that Bazel makes one of the output.
int RunSideBySide(int argc, char** argv, int at_once);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_SIDE_BY_SIDE_H_
