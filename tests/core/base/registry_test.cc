// Entries that are built in, and those that are added to them.

#include "core/base/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::registry_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Registry<int> Numbers() { return Registry<int>("number", {{"two", 2}}); }

TEST(RegistryTest, FindsWhatIsBuiltInAndWhatWasAdded) {
  Registry<int> numbers = Numbers();
  EXPECT_THAT(numbers.Added(), IsEmpty());
  ASSERT_TRUE(numbers.Add("one", 1).ok());
  ASSERT_TRUE(numbers.Add("zero", 0).ok());
  ASSERT_NE(numbers.Find("one"), nullptr);
  EXPECT_EQ(*numbers.Find("one"), 1);
  EXPECT_EQ(*numbers.Find("two"), 2);
  EXPECT_EQ(numbers.Find("three"), nullptr);
  EXPECT_THAT(numbers.Names(), ElementsAre("one", "two", "zero"));
  EXPECT_THAT(numbers.Added(), ElementsAre("one", "zero"));
}

TEST(RegistryTest, ANameThatThereIsStaysWhatItWas) {
  Registry<int> numbers = Numbers();
  ASSERT_TRUE(numbers.Add("one", 1).ok());
  for (const char* const name : {"one", "two"}) {
    const absl::Status again = numbers.Add(name, 7);
    EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(again.message(),
              "cannot register number '" + std::string(name) +
                  "': there is one of that name already; choose another than "
                  "one, two");
    EXPECT_NE(*numbers.Find(name), 7);
  }
}

}  // namespace
}  // namespace tandem::registry_test
