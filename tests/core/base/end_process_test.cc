#include "core/base/end_process.h"

#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::end_process_test {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

struct Speaker {
  ~Speaker() { std::fputs("destroyed", stderr); }
};

[[noreturn]] void End() {
  static const Speaker speaker;
  EndProcess(3);
}

TEST(EndProcessTest, RunsNoDestructors) {
  EXPECT_EXIT(End(), ExitedWithCode(3), Not(HasSubstr("destroyed")));
}

TEST(EndProcessTest, WritesOutWhatIsBuffered) {
  const auto end = [] {
    // A pipe or a file is like this: written when it is full.
    setvbuf(stderr, nullptr, _IOFBF, 4096);
    std::fputs("to stderr", stderr);
    EndProcess(0);
  };
  EXPECT_EXIT(end(), ExitedWithCode(0), HasSubstr("to stderr"));
}

}  // namespace
}  // namespace tandem::end_process_test
