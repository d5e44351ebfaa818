// A metrics file of which an event was written in part: a program of its own,
// as the limit on files is the process's.

#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/report/metrics.h"

namespace tandem {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Files may not grow beyond `bytes` while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &old_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit old_ = {};
};

TEST(TornMetricsTest, AnEventIsThereWholeOrNotAtAll) {
  const std::string path = testing::TempDir() + "/torn_metrics.jsonl";
  std::remove(path.c_str());
  absl::StatusOr<MetricsFile> metrics = MetricsFile::Open(path);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_TRUE(metrics->Write({{"n", 1}}).ok());
  const std::string first = Contents(path);
  absl::Status full;
  {
    const FileLimit limit(first.size() + 3);
    full = metrics->Write({{"n", 2}});
  }
  EXPECT_THAT(full, Says(path + ": cannot write: File too large"));
  EXPECT_EQ(Contents(path), first);
  ASSERT_TRUE(metrics->Write({{"n", 3}}).ok());
  EXPECT_EQ(Contents(path), "{\"n\":1}\n{\"n\":3}\n");
}

}  // namespace
}  // namespace tandem
