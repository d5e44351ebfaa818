// The order in which phases of chunks are started and waited for.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backend/hierarchical_backend.h"

namespace tandem::chunked_phases_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tensors = std::vector<at::Tensor>;

// Says when it is waited for.
class NotedWork : public c10d::Work {
 public:
  explicit NotedWork(std::function<void()> waited)
      : waited_(std::move(waited)) {}
  bool wait(std::chrono::milliseconds) override {
    waited_();
    return true;
  }

 private:
  const std::function<void()> waited_;
};

// Notes "up 0" when the phase of the first chunk starts, and "up 0 ended" when
// it has been waited for.
class Notes {
 public:
  ThreePhases::Start Phase(const std::string& name) {
    return [this, name, count = 0](Tensors& chunk) mutable {
      const std::string what = absl::StrCat(name, " ", count++);
      lines.push_back(what);
      chunks.push_back(chunk.at(0));
      return c10::make_intrusive<NotedWork>(
          [this, what] { lines.push_back(what + " ended"); });
    };
  }

  std::vector<std::string> lines;
  Tensors chunks;
};

TEST(ChunkedPhasesTest, WhileAChunkIsAcrossTheNextGoesUpAndTheLastComesDown) {
  Notes notes;
  RunInChunks({at::zeros({64})}, 64,
              {notes.Phase("up"), notes.Phase("across"), notes.Phase("down")});
  EXPECT_THAT(notes.lines,
              ElementsAre("up 0", "up 1", "up 0 ended", "across 0", "up 2",
                          "up 1 ended", "across 1", "across 0 ended", "down 0",
                          "up 3", "up 2 ended", "across 2", "across 1 ended",
                          "down 1", "up 3 ended", "across 3", "across 2 ended",
                          "down 2", "across 3 ended", "down 3", "down 0 ended",
                          "down 1 ended", "down 2 ended", "down 3 ended"));
}

// Who is no leader starts the same inside of its host in the same order.
TEST(ChunkedPhasesTest, WithoutOnePhaseTheOthersKeepTheirOrder) {
  Notes notes;
  RunInChunks({at::zeros({64})}, 64,
              {notes.Phase("up"), {}, notes.Phase("down")});
  std::vector<std::string> starts;
  for (const std::string& line : notes.lines) {
    if (line.find("ended") == std::string::npos) starts.push_back(line);
  }
  EXPECT_THAT(starts, ElementsAre("up 0", "up 1", "up 2", "down 0", "up 3",
                                  "down 1", "down 2", "down 3"));
}

TEST(ChunkedPhasesTest, ChunksAreTheWholeTensorAndAlike) {
  for (const int64_t size : {0, 1, 16, 17, 997, 5003}) {
    const at::Tensor tensor = at::arange(size, at::kFloat);
    Notes notes;
    RunInChunks({tensor}, 1024, {{}, notes.Phase("across"), {}});
    EXPECT_TRUE(at::equal(at::cat(notes.chunks), tensor)) << size;
    EXPECT_EQ(notes.chunks.size(), size == 0 ? 1 : (size * 4 + 1023) / 1024);
    for (const at::Tensor& chunk : notes.chunks) {
      EXPECT_LE(chunk.nbytes(), 1024U);
      EXPECT_TRUE(chunk.is_alias_of(tensor) || size == 0);
      // All but the last are of one size, which is lines of the cache.
      if (chunk.data_ptr() != notes.chunks.back().data_ptr()) {
        EXPECT_EQ(chunk.nbytes() % 64, 0U);
        EXPECT_GE(chunk.numel(), notes.chunks.back().numel());
      }
    }
  }
}

TEST(ChunkedPhasesTest, SeveralTensorsOrOneWithGapsAreOneChunk) {
  Notes notes;
  const ThreePhases across{{}, notes.Phase("across"), {}};
  RunInChunks({at::zeros({64}), at::zeros({64})}, 64, across);
  RunInChunks({at::zeros({64, 2}).select(1, 0)}, 64, across);
  EXPECT_EQ(notes.chunks.size(), 2U);
}

TEST(ChunkedPhasesTest, AFailureEndsItAndStartsNothingMore) {
  Notes notes;
  const ThreePhases phases{{},
                           [](Tensors&) -> c10::intrusive_ptr<c10d::Work> {
                             return c10::make_intrusive<NotedWork>([] {
                               TORCH_CHECK(false, "the cable was cut");
                             });
                           },
                           notes.Phase("down")};
  EXPECT_THROW(RunInChunks({at::zeros({64})}, 64, phases), c10::Error);
  EXPECT_THAT(notes.lines, IsEmpty());
}

}  // namespace
}  // namespace tandem::chunked_phases_test
