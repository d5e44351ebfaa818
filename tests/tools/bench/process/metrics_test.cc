#include "tools/bench/process/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/testing/statuses.h"

namespace tandem::metrics_test {
namespace {

using testing::SizeIs;

TEST(MetricsEvents, AreThoseOfOneNameInOrder) {
  const std::string path = testing::TempDir() + "/metrics.jsonl";
  std::ofstream(path) << "{\"event\": \"step\", \"loss\": 2.5}\n"
                         "{\"event\": \"eval\", \"loss\": 2.25}\n"
                         "torn {\n"
                         "{\"event\": \"step\", \"loss\": 1.5}\n";
  const auto steps = MetricsEvents(path, "step");
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_THAT(*steps, SizeIs(2));
  EXPECT_EQ(steps->front().at("loss"), 2.5);
  EXPECT_EQ(steps->back().at("loss"), 1.5);
  EXPECT_THAT(*MetricsEvents(path, "eval"), SizeIs(1));
  EXPECT_THAT(MetricsEvents(path, "summary").status(),
              StatusIs(absl::StatusCode::kInternal, path, "no event summary"));
}

TEST(MetricsEvents, OfNoFileAreAnError) {
  EXPECT_THAT(MetricsEvents("/no/such/file", "step").status(),
              Says("/no/such/file has no event step"));
}

}  // namespace
}  // namespace tandem::metrics_test
