#include "tools/hang_diagnosis/read_dumps.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::read_dumps_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string NewFolder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

void WriteDump(const std::string& folder, int rank, const std::string& job,
               int64_t when, const std::string& name = "") {
  FlightDump dump;
  dump.rank = rank;
  dump.world_size = 12;
  dump.job = job;
  dump.dumped_ns = when;
  const std::string file =
      name.empty() ? "rank_" + std::to_string(rank) + ".json" : name;
  Write(folder + "/" + file, EncodeFlightDump(dump));
}

TEST(ReadDumpsTest, ThoseOfTheLastJobByRank) {
  const std::string folder = NewFolder("jobs");
  WriteDump(folder, 10, "new", 30);
  WriteDump(folder, 2, "new", 20);
  WriteDump(folder, 11, "old", 10);  // the old job had more ranks
  Write(folder + "/notes.txt", "");
  const absl::StatusOr<FoundDumps> found = ReadDumps(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_THAT(found->dumps, SizeIs(2));
  EXPECT_EQ(found->dumps[0].rank, 2);
  EXPECT_EQ(found->dumps[1].rank, 10);
  EXPECT_THAT(found->ignored,
              ElementsAre(HasSubstr("rank_11.json: of another job")));
}

TEST(ReadDumpsTest, WhatIsNoneIsIgnoredWithTheReason) {
  const std::string folder = NewFolder("broken");
  WriteDump(folder, 0, "job", 1);
  WriteDump(folder, 3, "job", 1, "rank_1.json");  // would be counted twice
  Write(folder + "/rank_2.json", "{}");
  Write(folder + "/rank_4.json", "");
  fs::create_directories(folder + "/rank_5.json");
  Write(folder + "/rank_6.json", "");
  fs::resize_file(folder + "/rank_6.json", (64 << 20) + 1);
  const absl::StatusOr<FoundDumps> found = ReadDumps(folder);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->dumps, SizeIs(1));
  EXPECT_THAT(
      found->ignored,
      ElementsAre(HasSubstr("is the dump of rank 3"),
                  HasSubstr("\"version\" is missing"), HasSubstr("rank_4.json"),
                  HasSubstr("rank_5.json"), HasSubstr("more than any dump")));
}

TEST(ReadDumpsTest, AFolderWithoutAnyIsAnError) {
  const std::string folder = NewFolder("empty");
  EXPECT_EQ(ReadDumps(folder).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadDumps(folder + "/none").status().message()),
              HasSubstr("/empty/none"));
  Write(folder + "/rank_0.json", "3");
  EXPECT_THAT(std::string(ReadDumps(folder).status().message()),
              HasSubstr("rank_0.json: this is not a flight dump"));
}

}  // namespace
}  // namespace tandem::read_dumps_test
