// Data sets of a user's own in the registry. They stay for the whole process.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "datasets/registry.h"
#include "datasets/synthetic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::registration_test {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

absl::StatusOr<std::unique_ptr<Dataset>> OpenTwo(const DatasetOptions& given) {
  SyntheticImagesOptions two = {{1}, 2, given.length};
  return MakeSyntheticImages(two);
}

TEST(RegistrationTest, ARegisteredDataSetIsOneOfTheNames) {
  ASSERT_EQ(RegisterDataset("my_two", OpenTwo), absl::OkStatus());
  DatasetOptions options;
  options.name = "my_two";
  options.length = 7;
  const auto dataset = MakeDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 7);
  EXPECT_THAT(RegisteredDatasets(), Contains("my_two"));
  EXPECT_THAT(DatasetNames(), IsSupersetOf({"mnist", "my_two", "synthetic"}));
  options.name = "my_too";
  EXPECT_THAT(MakeDataset(options).status(),
              Says("choose one of my_two, mnist, "));
}

TEST(RegistrationTest, ANameThatThereIsIsNotRegisteredAgain) {
  ASSERT_EQ(RegisterDataset("twice", OpenTwo), absl::OkStatus());
  for (const char* name : {"twice", "mnist"}) {
    const absl::Status status = RegisterDataset(name, OpenTwo);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists,
                                 std::string("data set '") + name +
                                     "': there is one of that name already"));
  }
}

TEST(RegistrationTest, ARegistrationNeedsANameAndAnOpenerThatOpens) {
  EXPECT_EQ(RegisterDataset("", OpenTwo).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RegisterDataset("none", nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  const auto nothing =
      [](const DatasetOptions&) -> absl::StatusOr<std::unique_ptr<Dataset>> {
    return std::unique_ptr<Dataset>();
  };
  ASSERT_EQ(RegisterDataset("nothing", nothing), absl::OkStatus());
  DatasetOptions options;
  options.name = "nothing";
  EXPECT_THAT(MakeDataset(options).status(),
              Says("the opener of data set 'nothing' gave neither"));
}

}  // namespace
}  // namespace tandem::registration_test
