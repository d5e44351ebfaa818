#include "core/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name) { return directory_ / name; }

  int CountFiles() {
    int count = 0;
    for (auto& entry : fs::directory_iterator(directory_)) {
      (void)entry;
      ++count;
    }
    return count;
  }

  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }

  fs::path directory_ = fs::path(testing::TempDir()) / "atomic_file_test";
};

// No file of this process may grow beyond a limit while this lives: the next
// best thing to a full disk, which a test cannot make.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_;
  void (*handler_)(int);
};

TEST_F(AtomicFileTest, AppearsWholeOnCommit) {
  const std::string path = Path("a");
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("one ").ok());
  EXPECT_FALSE(fs::exists(path));
  ASSERT_TRUE((*file)->Append("two").ok());
  EXPECT_EQ((*file)->size(), 7u);
  ASSERT_TRUE((*file)->Commit().ok());
  file->reset();
  EXPECT_EQ(Read(path), "one two");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(AtomicFileTest, ReplacesWhatWasThere) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old and longer").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "new").ok());
  EXPECT_EQ(Read(Path("a")), "new");
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "").ok());
  EXPECT_EQ(Read(Path("a")), "");
}

TEST_F(AtomicFileTest, HasTheModeOfAnOrdinaryFile) {
  const mode_t mask = umask(027);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x").ok());
  umask(mask);
  struct stat status;
  ASSERT_EQ(stat(Path("a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old").ok());
  {
    auto file = AtomicFile::Create(Path("a"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("new").ok());
    EXPECT_EQ(CountFiles(), 2);
  }
  EXPECT_EQ(Read(Path("a")), "old");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(AtomicFileTest, WriteThatDoesNotFitKeepsTheOldFile) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old").ok());
  absl::Status status;
  {
    FileSizeLimit limit(1000);
    status = WriteFileAtomically(Path("a"), std::string(5000, 'x'));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), Path("a"))) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "after 1000 bytes"))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "File too large")) << status;
  EXPECT_EQ(Read(Path("a")), "old");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(AtomicFileTest, MissingDirectoryIsNamed) {
  const absl::Status status = WriteFileAtomically(Path("none/a"), "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(status.message(), Path("none/a"))) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "No such file")) << status;
}

TEST_F(AtomicFileTest, FileInPlaceOfTheDirectoryIsAnError) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x").ok());
  EXPECT_EQ(WriteFileAtomically(Path("a/b"), "x").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(AtomicFileTest, DirectoryInPlaceOfTheFileIsAnError) {
  fs::create_directory(Path("d"));
  for (const std::string& path : {Path("d"), Path("d/"), std::string()}) {
    const absl::Status status = WriteFileAtomically(path, "x");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
  }
  EXPECT_EQ(CountFiles(), 1);
}

}  // namespace
}  // namespace tandem
