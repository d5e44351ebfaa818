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

// A status with each of the texts in its message.
template <typename... Texts>
testing::Matcher<const absl::Status&> Says(const Texts&... texts) {
  return testing::ResultOf(
      [](const absl::Status& status) { return std::string(status.message()); },
      testing::AllOf(testing::HasSubstr(std::string(texts))...));
}

// A status of this code, with each of the texts in its message.
template <typename... Texts>
testing::Matcher<const absl::Status&> StatusIs(absl::StatusCode code,
                                               const Texts&... texts) {
  return testing::AllOf(testing::Property(&absl::Status::code, code),
                        Says(texts...));
}

template <typename... Texts>
testing::Matcher<const absl::Status&> InvalidArgument(const Texts&... texts) {
  return StatusIs(absl::StatusCode::kInvalidArgument, texts...);
}

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_STATUSES_H_
