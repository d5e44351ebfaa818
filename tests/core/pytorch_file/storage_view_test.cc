#include <limits>

#include "core/pytorch_file/state_dict.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::storage_view_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

std::string ErrorOf(const StorageView& view) {
  return std::string(CheckView(view).message());
}

TEST(StorageViewTest, ViewsWithinTheStorageAreTaken) {
  const std::pair<StorageView, int64_t> cases[] = {
      {{{}, {}, 4, 5}, 1},              // a scalar, the last element
      {{{5}, {1}, 0, 5}, 5},            // all
      {{{3, 4}, {4, 1}, 0, 12}, 12},    // row-major
      {{{4, 3}, {1, 4}, 0, 12}, 12},    // transposed
      {{{2, 2}, {8, 2}, 1, 12}, 11},    // steps
      {{{1, 7}, {kHuge, 1}, 0, 7}, 7},  // a stride that nothing takes
      {{{2, 3}, {0, 1}, 0, 6}, 3},      // the same row twice
  };
  for (const auto& [view, span] : cases) {
    EXPECT_EQ(ErrorOf(view), "");
    EXPECT_FALSE(IsEmpty(view));
    EXPECT_EQ(SpanOf(view), span);
  }
}

TEST(StorageViewTest, ViewsThatLeaveTheStorageAreRefused) {
  const StorageView cases[] = {
      {{}, {}, 5, 5},
      {{}, {}, 0, 0},
      {{6}, {1}, 0, 5},
      {{5}, {1}, 1, 5},
      {{2, 2}, {8, 2}, 2, 12},
      {{2}, {1}, kHuge, 5},
      {{2}, {kHuge}, 0, 5},
      {{kHuge}, {kHuge}, 0, kHuge},
      {{kHuge, kHuge}, {1, 1}, 0, 5},
  };
  for (const StorageView& view : cases) {
    EXPECT_THAT(ErrorOf(view), HasSubstr("leaves its storage"));
  }
  EXPECT_THAT(ErrorOf({{2, 3}, {4, 1}, 7, 12}),
              HasSubstr("sizes [2, 3], strides [4, 1], offset 7 in a storage "
                        "of 12 elements"));
}

// Memory would be taken for them that no file has.
TEST(StorageViewTest, ExpandedViewsAreRefused) {
  EXPECT_THAT(ErrorOf({{1000}, {0}, 0, 1}), HasSubstr("save it contiguous"));
  EXPECT_THAT(ErrorOf({{kHuge, kHuge}, {0, 0}, 0, kHuge}),
              HasSubstr("save it contiguous"));
}

TEST(StorageViewTest, EmptyViewsNeedNoStorage) {
  const StorageView view = {{0, 4}, {4, 1}, 9, 0};
  EXPECT_EQ(ErrorOf(view), "");
  EXPECT_TRUE(IsEmpty(view));
  EXPECT_THAT(ErrorOf({{0, kHuge, kHuge}, {1, 1, 1}, 0, 0}),
              HasSubstr("beyond 2^31"));
}

TEST(StorageViewTest, EachSizeHasAStride) {
  EXPECT_THAT(ErrorOf({{2, 3}, {1}, 0, 6}), HasSubstr("as many strides"));
}

}  // namespace
}  // namespace tandem::storage_view_test
