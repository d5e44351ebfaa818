// For tests: what is expected of an absl::Status.
//
//   ExpectOk(RunThreadRanks(2, body));
//   EXPECT_THAT(MakeSchedule("zb_v", {3, 1, 4}).status(), Says("zb_v"));
//   EXPECT_THAT(status, InvalidArgument("seed is 5 on rank 1"));

#ifndef TANDEM_CORE_TESTING_STATUSES_H_
#define TANDEM_CORE_TESTING_STATUSES_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"

namespace tandem {

// Fails the test, at the caller's line, with what went wrong.
inline void ExpectOk(const absl::Status& status,
                     const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  if (!status.ok()) ADD_FAILURE_AT(file, line) << status;
}

// A status with `text` in its message.
inline testing::Matcher<const absl::Status&> Says(const std::string& text) {
  return testing::ResultOf(
      [](const absl::Status& status) { return std::string(status.message()); },
      testing::HasSubstr(text));
}

// A status of this code, with `text` in its message.
inline testing::Matcher<const absl::Status&> StatusIs(absl::StatusCode code,
                                                      const std::string& text) {
  return testing::AllOf(testing::Property(&absl::Status::code, code),
                        Says(text));
}

inline testing::Matcher<const absl::Status&> InvalidArgument(
    const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, text);
}

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_STATUSES_H_
