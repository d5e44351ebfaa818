// Event files on a disk that is full: a limit on the process's files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/tensorboard/event_writer.h"
#include "core/testing/statuses.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/core/testing/file_limit.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

constexpr rlim_t kLimit = 150;

std::unique_ptr<EventWriter> WriterIn(const std::string& folder,
                                      absl::Duration interval) {
  EventWriterOptions options;
  options.flush_interval = interval;
  auto writer = EventWriter::Create(NewTestFolder(folder), options);
  if (writer.ok()) return *std::move(writer);
  ADD_FAILURE() << writer.status();
  return nullptr;
}

TEST(FullDiskTest, TheFileIsNamedAndWholeAndEventsWait) {
  const auto writer = WriterIn("full", absl::InfiniteDuration());
  ASSERT_NE(writer, nullptr);
  ExpectOk(writer->AddScalar("before", 1, 1));
  ExpectOk(writer->Flush());
  const std::string before = ReadBytes(writer->path());
  {
    const FileLimit limit(kLimit);
    ExpectOk(writer->AddText("long", std::string(300, 'x'), 2));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(writer->Flush(),
                  Says(writer->path() + ": cannot write", "File too large"));
      // Nothing of the event, whose beginning would have found room.
      EXPECT_EQ(ReadBytes(writer->path()), before);
    }
  }
  ExpectOk(writer->AddScalar("after", 1, 3));
  ExpectOk(writer->Flush());
  EXPECT_EQ(RecordsIn(writer->path()).size(), 4u);
}

TEST(FullDiskTest, AFailureThatNobodySawIsToldByTheNextMethodOnce) {
  const auto writer = WriterIn("unseen", absl::Milliseconds(10));
  ASSERT_NE(writer, nullptr);
  const FileLimit limit(kLimit);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  ExpectOk(writer->AddText("long", std::string(300, 'x'), 2));
  absl::Status told;
  while (told.ok() && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(20));
    told = writer->AddScalar("after", 1, 3);
  }
  EXPECT_THAT(told, Says(writer->path() + ": cannot write"));
}

TEST(FullDiskTest, EventsThatWaitForTooLongAreDropped) {
  const auto writer = WriterIn("dropped", absl::InfiniteDuration());
  ASSERT_NE(writer, nullptr);
  {
    const FileLimit limit(kLimit);
    // Kept, and dropped with the one that brings them above 16 MiB.
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(writer->AddText("long", std::string(size_t{9} << 20, 'x'), i),
                  Says("cannot write"));
    }
  }
  ExpectOk(writer->AddScalar("after", 1, 3));
  ExpectOk(writer->Flush());
  EXPECT_EQ(RecordsIn(writer->path()).size(), 2u);
}

}  // namespace
}  // namespace tandem
