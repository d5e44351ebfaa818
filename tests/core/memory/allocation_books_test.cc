#include <c10/util/Exception.h>

#include <string>
#include <thread>
#include <vector>

#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "core/memory/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::allocation_books_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Entry = AllocationBooks::Entry;

Entry Of(Entry::Action action, int device, size_t address, size_t size) {
  return Entry(action, static_cast<c10::DeviceIndex>(device), address, size,
               /*stream=*/nullptr, /*mempool=*/{0, 0}, /*time=*/{});
}

void Allocate(AllocationBooks& books, MemoryCategory category, size_t address,
              size_t size, int device = 0) {
  const MemoryCategoryScope scope(category);
  books.Note(Of(Entry::ALLOC, device, address, size));
}

TEST(AllocationBooksTest, CountsByTheScopeOfWhoeverAllocates) {
  AllocationBooks books;
  EXPECT_EQ(DescribeUse(books.Of(0).now), "nothing");
  Allocate(books, MemoryCategory::kParameters, 1000, 512);
  Allocate(books, MemoryCategory::kActivations, 2000, 7);
  books.Note(Of(Entry::ALLOC, 0, 3000, 1));
  EXPECT_EQ(DescribeUse(books.Of(0).now),
            "parameters 512 B, activations 7 B, other 1 B");
  books.Note(Of(Entry::FREE_REQUESTED, 0, 2000, 7));
  EXPECT_EQ(books.Of(0).now.total, 520) << "another stream may use it yet";
  books.Note(Of(Entry::FREE_COMPLETED, 0, 2000, 7));
  EXPECT_EQ(DescribeUse(books.Of(0).now), "parameters 512 B, other 1 B");
  EXPECT_EQ(books.Of(0).peak.total, 520);
}

TEST(AllocationBooksTest, DevicesHaveTheirOwn) {
  AllocationBooks books;
  Allocate(books, MemoryCategory::kOptimizer, 1000, 3, /*device=*/0);
  Allocate(books, MemoryCategory::kGradients, 1000, 5, /*device=*/1);
  books.Note(Of(Entry::FREE_COMPLETED, 0, 1000, 3));
  EXPECT_EQ(books.Of(0).now.total, 0);
  EXPECT_EQ(DescribeUse(books.Of(1).now), "gradients 5 B");
}

TEST(AllocationBooksTest, WhatTheyWereNotToldOfIsNotMissed) {
  AllocationBooks books;
  books.Note(Of(Entry::FREE_COMPLETED, 0, 1000, 3));  // from before
  EXPECT_EQ(books.Of(0).now.total, 0);
  Allocate(books, MemoryCategory::kOther, 1000, 3);
  Allocate(books, MemoryCategory::kOther, 1000, 5);  // the end was not told
  books.Note(Of(Entry::SEGMENT_ALLOC, 0, 0, 1 << 20));
  EXPECT_EQ(books.Of(0).now.total, 5);
}

TEST(AllocationBooksTest, ThreadsCountTogether) {
  AllocationBooks books;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&books, thread] {
      for (size_t i = 1; i <= 101; ++i) {
        Allocate(books, MemoryCategory::kGradients, thread * 1000 + i, i);
        if (i % 2 == 0) {
          books.Note(Of(Entry::FREE_COMPLETED, 0, thread * 1000 + i, i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(books.Of(0).now.total, 3 * 51 * 51);  // 1 + 3 + ... + 101
}

AllocationBooks& BooksOfProcess() {
  static auto* books = new AllocationBooks;
  return *books;
}

// What a caching allocator tells and throws when there is no memory.
void RunOut() {
  BooksOfProcess().Note(Of(Entry::OOM, 2, /*address: free=*/64, 1 << 20));
  TORCH_CHECK_WITH(OutOfMemoryError, false,
                   "CUDA out of memory. Tried to allocate 1.00 MiB. GPU 2 has "
                   "a total capacity of 79.10 GiB");
}

TEST(AllocationBooksTest, AnOutOfMemoryErrorTellsWhatWasHeldThen) {
  EXPECT_EQ(BooksOfProcess().TakeFailure("cuda"), "");
  SetOutOfMemoryNote([] { return BooksOfProcess().TakeFailure("cuda"); });
  Allocate(BooksOfProcess(), MemoryCategory::kParameters, 1, 3 << 20, 2);
  Allocate(BooksOfProcess(), MemoryCategory::kActivations, 2, 1 << 20, 2);
  const absl::Status status = CatchTorch([] { RunOut(); }, "layer fc");
  BooksOfProcess().Note(Of(Entry::FREE_COMPLETED, 2, 2, 1 << 20));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("layer fc: CUDA out of memory. Tried to allocate"),
            HasSubstr("total capacity of 79.10 GiB; cuda:2 held 4 MiB then "
                      "(parameters 3 MiB, activations 1 MiB): take a smaller "
                      "batch")));
  // Another error is another one's: by then it held less.
  EXPECT_EQ(NoteOnOutOfMemory(), "");
  EXPECT_THAT(std::string(CatchTorch([] { RunOut(); }, "").message()),
              HasSubstr("cuda:2 held 3 MiB then (parameters 3 MiB)"));
  SetOutOfMemoryNote(nullptr);
  EXPECT_EQ(NoteOnOutOfMemory(), "");
}

}  // namespace
}  // namespace tandem::allocation_books_test
