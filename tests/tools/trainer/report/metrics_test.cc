#include "tools/trainer/report/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::metrics_test {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Where there is no file.
std::string NewPath(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::remove(path.c_str());
  return path;
}

TEST(MetricsFileTest, WritesOneObjectALineInTheGivenOrder) {
  const std::string path = NewPath("metrics.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"event", "step"}, {"step", 25}}).ok());
  // Flushed at once: a reader can follow.
  EXPECT_EQ(Contents(path), "{\"event\":\"step\",\"step\":25}\n");
  ASSERT_TRUE(metrics->Write({{"event", "eval"}, {"loss", 0.5}}).ok());
  EXPECT_EQ(Contents(path),
            "{\"event\":\"step\",\"step\":25}\n"
            "{\"event\":\"eval\",\"loss\":0.5}\n");
}

TEST(MetricsFileTest, KeepsWhatAnEarlierJobWrote) {
  const std::string path = NewPath("kept.jsonl");
  for (const char* name : {".1", ".2"}) std::remove((path + name).c_str());
  const auto write = [&](int number, bool is_anothers) {
    absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    const std::string before = Contents(path);
    std::string earlier;
    if (is_anothers) {
      // Until then nothing is moved.
      earlier = metrics->MoveEarlier().value_or("error");
    }
    if (!earlier.empty()) EXPECT_EQ(Contents(earlier), before);
    EXPECT_TRUE(metrics->Write({{"n", number}}).ok());
    return earlier;
  };
  EXPECT_EQ(write(1, true), "");
  EXPECT_EQ(write(2, false), "");
  EXPECT_EQ(write(3, true), path + ".1");
  EXPECT_EQ(write(4, true), path + ".2");
  EXPECT_EQ(Contents(path + ".1"), "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(Contents(path + ".2"), "{\"n\":3}\n");
  EXPECT_EQ(Contents(path), "{\"n\":4}\n");
}

// A process was killed, or a disk was full.
TEST(MetricsFileTest, GoesOnBehindAHalfLineWithAnotherOne) {
  const std::string path = NewPath("torn.jsonl");
  std::ofstream(path) << "{\"n\":1}\n{\"n";
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"n", 2}}).ok());
  ASSERT_TRUE(metrics->Write({{"n", 3}}).ok());
  EXPECT_EQ(Contents(path), "{\"n\":1}\n{\"n\n{\"n\":2}\n{\"n\":3}\n");
}

TEST(MetricsFileTest, TakesATextThatIsNoUtf8) {
  const std::string path = NewPath("latin1.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->Write({{"save_dir", "caf\xe9"}}).ok());
  EXPECT_THAT(Contents(path), HasSubstr("caf"));
}

TEST(MetricsFileTest, WritesNullForWhatIsNotFinite) {
  const std::string path = NewPath("nan.jsonl");
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"loss", std::nan("")}}).ok());
  EXPECT_EQ(Contents(path), "{\"loss\":null}\n");
}

TEST(MetricsFileTest, WritesToAPipeThatSomebodyReads) {
  const std::string path = testing::TempDir() + "/metrics_pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(MetricsFile::Open(path).status().message()),
              HasSubstr("nobody reads from this pipe"));
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"event", "x"}}).ok());
  char text[32] = {};
  EXPECT_GT(read(reader, text, sizeof(text) - 1), 0);
  EXPECT_STREQ(text, "{\"event\":\"x\"}\n");
  close(reader);
}

TEST(MetricsFileTest, SwallowsEverythingWithoutAPath) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open("");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->Write({{"event", "step"}}).ok());
}

TEST(MetricsFileTest, NamesThePathThatCannotBeOpened) {
  absl::StatusOr<MetricsFile> metrics =
      MetricsFile::Open("/nonexistent/metrics.jsonl");
  EXPECT_THAT(std::string(metrics.status().message()),
              HasSubstr("--metrics_file=/nonexistent/metrics.jsonl"));
}

TEST(MetricsFileTest, ReportsAFullDisk) {
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open("/dev/full");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  const absl::Status full = metrics->Write({{"event", "step"}});
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace tandem::metrics_test
