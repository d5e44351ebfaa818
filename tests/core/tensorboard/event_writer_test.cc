#include "core/tensorboard/event_writer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/testing/statuses.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/core/testing/test_files.h"

namespace tandem::event_writer_test {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

// Events of 1970, and no flush by time.
EventWriterOptions FixedOptions() {
  EventWriterOptions options;
  options.clock = [] { return absl::UnixEpoch() + absl::Seconds(1.5); };
  options.flush_interval = absl::InfiniteDuration();
  return options;
}

std::unique_ptr<EventWriter> WriterIn(
    const std::string& folder,
    const EventWriterOptions& options = FixedOptions()) {
  auto writer = EventWriter::Create(folder, options);
  if (writer.ok()) return *std::move(writer);
  ADD_FAILURE() << writer.status();
  return nullptr;
}

std::vector<std::string> RecordsInHex(const std::string& path) {
  std::vector<std::string> records;
  for (const std::string& each : RecordsIn(path)) {
    records.push_back(absl::BytesToHexString(each));
  }
  return records;
}

// Event{wall_time: 1.5, ...} of file_version "brain.Event:2"; of step 7 and
// summary {value {tag: "a/b", simple_value: 0.25}}; of step -1 and session_log
// {status: START}. Bytes are those of tensorboard.compat.proto.event_pb2.
constexpr char kVersion[] = "09000000000000f83f1a0d627261696e2e4576656e743a32";
constexpr char kScalar[] = "09000000000000f83f10072a0c0a0a0a03612f62150000803e";
constexpr char kStart[] = "09000000000000f83f10ffffffffffffffffff013a020801";

TEST(EventWriterTest, WritesTensorBoardsBytes) {
  const auto writer = WriterIn(NewTestFolder("bytes"));
  ASSERT_NE(writer, nullptr);
  // There from the beginning, for who follows the folder.
  EXPECT_THAT(RecordsInHex(writer->path()), ElementsAre(kVersion));
  ExpectOk(writer->AddScalar("a/b", 0.25, 7));
  ExpectOk(writer->AddSessionStart(-1));
  ExpectOk(writer->Flush());
  EXPECT_THAT(RecordsInHex(writer->path()),
              ElementsAre(kVersion, kScalar, kStart));
}

TEST(EventWriterTest, TheFileIsNamedByTimeHostProcessAndNumber) {
  const std::string folder = NewTestFolder("names");
  const auto one = WriterIn(folder), other = WriterIn(folder);
  ASSERT_TRUE(one != nullptr && other != nullptr);
  EXPECT_NE(one->path(), other->path());
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof(host) - 1), 0);
  const std::string expected = absl::StrCat(
      folder, "/events.out.tfevents.0000000001.", host, ".", getpid(), ".");
  EXPECT_THAT(one->path(), testing::StartsWith(expected));
  EXPECT_THAT(one->path().substr(expected.size()), MatchesRegex("[0-9]+"));
}

TEST(EventWriterTest, MakesTheFolderAndThoseAboveIt) {
  const std::string folder = NewTestFolder("above") + "/a/b";
  const auto writer = WriterIn(folder);
  ASSERT_NE(writer, nullptr);
  EXPECT_TRUE(std::filesystem::exists(writer->path()));
}

TEST(EventWriterTest, NamesTheFolderThatIsNone) {
  const std::string folder = NewTestFolder("none");
  WriteBytes(folder + "/file", "x");
  for (const std::string& path : {folder + "/file", folder + "/file/below"}) {
    EXPECT_THAT(EventWriter::Create(path).status(), Says(path));
    EXPECT_FALSE(EventWriter::Create(path).ok());
  }
  EventWriterOptions options;
  options.flush_interval = absl::ZeroDuration();
  EXPECT_THAT(EventWriter::Create(folder, options).status(),
              InvalidArgument("flush_interval is 0"));
}

TEST(EventWriterTest, FlushesWhenThereIsEnough) {
  EventWriterOptions options = FixedOptions();
  options.flush_bytes = 100;  // a record of the scalar has 41
  const auto writer = WriterIn(NewTestFolder("enough"), options);
  ASSERT_NE(writer, nullptr);
  ExpectOk(writer->AddScalar("a/b", 0.25, 7));
  ExpectOk(writer->AddScalar("a/b", 0.25, 7));
  EXPECT_THAT(RecordsInHex(writer->path()), ElementsAre(kVersion));
  ExpectOk(writer->AddScalar("a/b", 0.25, 7));
  EXPECT_THAT(RecordsInHex(writer->path()),
              ElementsAre(kVersion, kScalar, kScalar, kScalar));
}

TEST(EventWriterTest, FlushesAfterTheIntervalThoughNothingMoreComes) {
  EventWriterOptions options = FixedOptions();
  options.flush_interval = absl::Milliseconds(20);
  const auto writer = WriterIn(NewTestFolder("interval"), options);
  ASSERT_NE(writer, nullptr);
  for (size_t added = 2; added < 4; ++added) {
    ExpectOk(writer->AddScalar("a/b", 0.25, 7));
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (RecordsIn(writer->path()).size() < added && absl::Now() < end) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(RecordsIn(writer->path()).size(), added);
  }
}

TEST(EventWriterTest, FlushesAtItsEnd) {
  auto writer = WriterIn(NewTestFolder("end"));
  ASSERT_NE(writer, nullptr);
  const std::string path = writer->path();
  ExpectOk(writer->AddScalar("a/b", 0.25, 7));
  EXPECT_EQ(RecordsIn(path).size(), 1u);
  writer.reset();
  EXPECT_THAT(RecordsInHex(path), ElementsAre(kVersion, kScalar));
}

TEST(EventWriterTest, WhatIsRefusedLeavesNoEvent) {
  const auto writer = WriterIn(NewTestFolder("refused"));
  ASSERT_NE(writer, nullptr);
  EXPECT_THAT(writer->AddScalar("", 1, 1), InvalidArgument("is empty"));
  EXPECT_THAT(writer->AddText("t", "\xff", 1), InvalidArgument("\"t\""));
  EXPECT_THAT(writer->AddHistogram("h", at::empty({0}), 1),
              InvalidArgument("\"h\""));
  EXPECT_THAT(writer->AddImage("i", "no image", 1, 1, 1),
              InvalidArgument("\"i\""));
  ExpectOk(writer->AddSummary(Summary(), 1));
  ExpectOk(writer->Flush());
  EXPECT_EQ(RecordsIn(writer->path()).size(), 1u);
}

TEST(EventWriterTest, SeveralValuesOfAStepAreOneEvent) {
  const auto writer = WriterIn(NewTestFolder("several"));
  ASSERT_NE(writer, nullptr);
  Summary summary;
  ExpectOk(summary.AddScalar("a/b", 0.25));
  ExpectOk(summary.AddScalar("a/b", 0.25));
  ExpectOk(writer->AddSummary(summary, 7));
  ExpectOk(writer->Flush());
  EXPECT_THAT(RecordsInHex(writer->path()),
              ElementsAre(kVersion,
                          "09000000000000f83f1007"
                          "2a18"
                          "0a0a0a03612f62150000803e"
                          "0a0a0a03612f62150000803e"));
}

TEST(EventWriterTest, ThreadsMayAddAtOnce) {
  EventWriterOptions options = FixedOptions();
  options.flush_interval = absl::Milliseconds(1);
  options.flush_bytes = 200;
  const auto writer = WriterIn(NewTestFolder("threads"), options);
  ASSERT_NE(writer, nullptr);
  constexpr int kThreads = 3, kEach = 101;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&writer, i] {
      for (int step = 0; step < kEach; ++step) {
        ExpectOk(writer->AddScalar(absl::StrCat("thread", i), step, step));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  ExpectOk(writer->Flush());
  const std::vector<std::string> records = RecordsIn(writer->path());
  EXPECT_EQ(records.size(), 1u + kThreads * kEach);
  EXPECT_EQ(std::set<std::string>(records.begin(), records.end()).size(),
            records.size());
}

}  // namespace
}  // namespace tandem::event_writer_test
