// Models of a user's own in the registry. They stay for the whole process.

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/mlp.h"
#include "models/registry.h"

namespace tandem::registration_test {
namespace {

using ::testing::HasSubstr;

std::string Error(const ModelOptions& options) {
  const absl::StatusOr<LayerSpecs> model = MakeModel(options);
  EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
  return std::string(model.status().message());
}

// One layer, as wide as the data's samples.
absl::StatusOr<LayerSpecs> MakeOwn(const ModelOptions& options) {
  if (options.input_shape.size() != 1) {
    return absl::InvalidArgumentError("takes vectors");
  }
  return Mlp({options.input_shape[0], 1, options.sizes.width, options.classes});
}

TEST(RegistrationTest, ARegisteredModelIsOneOfTheNames) {
  const std::vector<std::string> before = KnownModels();
  ASSERT_EQ(RegisterModel("own", MakeOwn), absl::OkStatus());
  EXPECT_THAT(RegisteredModels(), testing::Contains("own"));
  std::vector<std::string> expected = before;
  expected.insert(absl::c_lower_bound(expected, "own"), "own");
  EXPECT_EQ(KnownModels(), expected);
  EXPECT_THAT(Error({"owm", {3}, 2}), HasSubstr("choose one of own, cnn, "));
  EXPECT_EQ(MakeModel({"own", {3}, 2})->size(), 2);
  EXPECT_EQ(MakeModel({"own", {3}, 2, /*tokens=*/true})->size(), 2);
  EXPECT_THAT(Error({"own", {3, 3}, 2}), HasSubstr("takes vectors"));
  EXPECT_THAT(Error({"own", {3}, 0}), HasSubstr("at least 1"));
}

TEST(RegistrationTest, WhatARegisteredModelSaysThatItTakesIsChecked) {
  ASSERT_EQ(RegisterModel("reads", MakeOwn, {/*tokens=*/true}),
            absl::OkStatus());
  ASSERT_EQ(RegisterModel("sees", MakeOwn, {/*tokens=*/false, true}),
            absl::OkStatus());
  EXPECT_THAT(Error({"reads", {3}, 2}), HasSubstr("takes token numbers"));
  EXPECT_THAT(Error({"sees", {3}, 2, true}), HasSubstr("takes real numbers"));
  EXPECT_THAT(Error({"reads", {3}, 2, true, {0, 5}}),
              HasSubstr("model reads is of one size, but width 5 was given"));
  EXPECT_TRUE(MakeModel({"sees", {3}, 2, false, {0, 5}}).ok());
}

TEST(RegistrationTest, ANameThatThereIsIsNotRegisteredAgain) {
  ASSERT_EQ(RegisterModel("twice", MakeOwn), absl::OkStatus());
  for (const char* name : {"twice", "cnn"}) {
    const absl::Status status = RegisterModel(name, MakeOwn);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists,
                                 std::string("model '") + name +
                                     "': there is one of that name already"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(RegisterModel("", MakeOwn)));
  EXPECT_TRUE(absl::IsInvalidArgument(RegisterModel("none", nullptr)));
}

}  // namespace
}  // namespace tandem::registration_test
