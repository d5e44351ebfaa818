#include "core/files/atomic_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files/temporary_file.h"
#include "core/instrument/fault_point.h"
#include "gtest/gtest.h"
#include "tests/core/testing/test_files.h"

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
  EXPECT_EQ(ReadBytes(path), "one two");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(AtomicFileTest, ReplacesWhatWasThere) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old and longer").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "new").ok());
  EXPECT_EQ(ReadBytes(Path("a")), "new");
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "").ok());
  EXPECT_EQ(ReadBytes(Path("a")), "");
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
  EXPECT_EQ(ReadBytes(Path("a")), "old");
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
  EXPECT_EQ(ReadBytes(Path("a")), "old");
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

TEST_F(AtomicFileTest, WhatWasWrittenCanBeOverwritten) {
  auto file = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(file.ok());
  const std::string large(size_t{3} << 20, 'x');
  ASSERT_TRUE((*file)->Append("0000").ok());
  ASSERT_TRUE((*file)->Append(large).ok());
  ASSERT_TRUE((*file)->Append("end").ok());
  ASSERT_TRUE((*file)->Overwrite(1, "12").ok());
  ASSERT_TRUE((*file)->Append(".").ok());
  EXPECT_EQ((*file)->size(), large.size() + 8);
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadBytes(Path("a")), "0120" + large + "end.");
}

TEST_F(AtomicFileTest, ALinkStaysAndItsFileIsReplaced) {
  fs::create_directory(Path("folder"));
  fs::create_symlink("folder/file", Path("link"));
  for (const char* contents : {"one", "two"}) {
    ASSERT_TRUE(WriteFileAtomically(Path("link"), contents).ok());
    EXPECT_EQ(ReadBytes(Path("folder/file")), contents);
    EXPECT_TRUE(fs::is_symlink(Path("link")));
  }
  EXPECT_EQ(CountFiles(), 2);
  fs::create_symlink("circle", Path("circle"));
  EXPECT_TRUE(
      absl::StrContains(WriteFileAtomically(Path("circle"), "x").message(),
                        "too many symbolic links"));
}

TEST_F(AtomicFileTest, WhatIsNoRegularFileIsNeverReplaced) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", Path("null"));
  for (const std::string& path : {Path("pipe"), Path("null")}) {
    const absl::Status status = WriteFileAtomically(path, "x");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  }
  EXPECT_TRUE(fs::is_fifo(Path("pipe")));
  EXPECT_TRUE(fs::is_symlink(Path("null")));
  EXPECT_EQ(CountFiles(), 2);
}

TEST_F(AtomicFileTest, ADeviceIsWrittenToInPlace) {
  fs::create_symlink("/dev/null", Path("null"));
  EXPECT_TRUE(WriteOutputFile(Path("null"), "x").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", Path("full"));
  const absl::Status full = WriteOutputFile(Path("full"), "x");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_TRUE(WriteOutputFile(Path("file"), "x").ok());
  EXPECT_EQ(ReadBytes(Path("file")), "x");
  EXPECT_EQ(CountFiles(), 3);
}

TEST_F(AtomicFileTest, APipeIsWrittenToWhereSomebodyReads) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const absl::Status alone = WriteOutputFile(Path("pipe"), "x");
  EXPECT_TRUE(absl::StrContains(alone.message(), "nobody reads")) << alone;
  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(WriteOutputFile(Path("pipe"), "hello").ok());
  char text[5];
  EXPECT_EQ(read(reader, text, sizeof(text)), 5);
  close(reader);
}

// The same as `program > file` with --trace_file=/dev/stdout: what the program
// prints afterwards comes behind it.
TEST_F(AtomicFileTest, AnOpenFileIsWrittenToWhereItStands) {
  const int out = open(Path("out").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(write(out, "one ", 4), 4);
  const std::string link = absl::StrCat("/dev/fd/", out);
  ASSERT_TRUE(WriteOutputFile(link, "two ").ok());
  ASSERT_EQ(write(out, "three", 5), 5);
  close(out);
  EXPECT_EQ(ReadBytes(Path("out")), "one two three");
}

TEST_F(AtomicFileTest, AnErrorBehindTheRenameIsNone) {
  ArmFaults(*ParseFaults("point=sync_new_name,action=fail"));
  EXPECT_TRUE(WriteFileAtomically(Path("a"), "new").ok());
  ArmFaults({});
  EXPECT_EQ(ReadBytes(Path("a")), "new");
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(AtomicFileTest, WhatKilledProcessesLeftIsRemoved) {
  std::ofstream(Path("a.tmp.aB3dE9")) << "half of it";
  std::ofstream(Path("b.tmp.aB3dE9")) << "another's";
  std::ofstream(Path("a.tmp.notes")) << "no temporary file";
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x").ok());
  EXPECT_FALSE(fs::exists(Path("a.tmp.aB3dE9")));
  EXPECT_TRUE(fs::exists(Path("b.tmp.aB3dE9")));
  EXPECT_TRUE(fs::exists(Path("a.tmp.notes")));
  const auto all = [](absl::string_view) { return true; };
  EXPECT_EQ(RemoveAbandonedFiles(directory_, all), 1);
  EXPECT_EQ(RemoveAbandonedFiles(Path("none"), all), 0);
  EXPECT_EQ(CountFiles(), 2);
}

TEST_F(AtomicFileTest, WhatALivingProcessWritesStays) {
  auto first = AtomicFile::Create(Path("a"));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->Append("first").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "second").ok());
  EXPECT_EQ(
      RemoveAbandonedFiles(directory_, [](absl::string_view) { return true; }),
      0);
  EXPECT_EQ(CountFiles(), 2);
  ASSERT_TRUE((*first)->Commit().ok());
  EXPECT_EQ(ReadBytes(Path("a")), "first");
  EXPECT_EQ(CountFiles(), 1);
}

// The lock goes with the process, whatever ends it.
TEST_F(AtomicFileTest, AKilledWritersFileIsRemoved) {
  const pid_t child = fork();
  if (child == 0) {
    auto file = AtomicFile::Create(Path("a"));
    if (file.ok()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int ended = 0;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  ASSERT_TRUE(WIFSIGNALED(ended));
  EXPECT_EQ(CountFiles(), 1);
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "x").ok());
  EXPECT_EQ(CountFiles(), 1);
  EXPECT_EQ(ReadBytes(Path("a")), "x");
}

}  // namespace
}  // namespace tandem
