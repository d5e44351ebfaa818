#include "core/cuda/gather_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using ::testing::Each;

// How often each element of each piece is copied.
std::vector<std::vector<int>> Copies(const std::vector<int64_t>& lengths) {
  std::vector<GatherPiece> pieces;
  std::vector<std::vector<int>> copies;
  for (const int64_t length : lengths) {
    pieces.push_back({nullptr, 0, length});
    copies.emplace_back(length, 0);
  }
  const GatherTable table =
      MakeGatherTable(pieces.data(), static_cast<int>(pieces.size()));
  for (int chunk = 0; chunk < table.chunks(); ++chunk) {
    const GatherSpan span = SpanOfChunk(table, chunk);
    EXPECT_LT(span.begin, span.end);
    for (int64_t i = span.begin; i < span.end; ++i) {
      ++copies.at(span.piece).at(i);
    }
  }
  return copies;
}

TEST(GatherTableTest, EachElementIsInOneChunk) {
  for (const auto& piece : Copies({1, kGatherChunk, 0, kGatherChunk + 1, 7})) {
    EXPECT_THAT(piece, Each(1));
  }
  for (const auto& piece : Copies({0, 0, 5 * kGatherChunk - 1, 0})) {
    EXPECT_THAT(piece, Each(1));
  }
}

TEST(GatherTableTest, AsManyPiecesAsItTakes) {
  std::vector<int64_t> lengths;
  for (int i = 0; i < kMostGatherPieces; ++i) lengths.push_back(i * 97);
  for (const auto& piece : Copies(lengths)) EXPECT_THAT(piece, Each(1));
}

TEST(GatherTableTest, NothingHasNoChunks) {
  EXPECT_EQ(MakeGatherTable(nullptr, 0).chunks(), 0);
  const GatherPiece empty;
  EXPECT_EQ(MakeGatherTable(&empty, 1).chunks(), 0);
}

// The least that CUDA grants for a kernel's arguments.
TEST(GatherTableTest, FitsAKernelsArguments) {
  EXPECT_LE(sizeof(GatherTable) + 16, 4096u);
}

}  // namespace
}  // namespace tandem
