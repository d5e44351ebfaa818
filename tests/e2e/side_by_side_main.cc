// In place of @com_google_googletest//:gtest_main: the program's tests run side
// by side.

#include "tests/e2e/side_by_side.h"

// A job that starts keeps two cores busy for a second and then waits for
// several; six of them at once have little left to wait for.
constexpr int kAtOnce = 6;

int main(int argc, char** argv) {
  return tandem::RunSideBySide(argc, argv, kAtOnce);
}
