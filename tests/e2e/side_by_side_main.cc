// In place of @com_google_googletest//:gtest_main: the program's tests run side
// by side.

#include "tests/e2e/side_by_side.h"

// A job that starts keeps two cores busy for a second and then waits for
// several; five of them at once leave little to wait for, and stay in time:
// those whose timeout is short start one after the other (StartTurn).
constexpr int kAtOnce = 5;

int main(int argc, char** argv) {
  return tandem::RunSideBySide(argc, argv, kAtOnce);
}
