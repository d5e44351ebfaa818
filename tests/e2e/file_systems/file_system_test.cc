// Jobs whose file system does not have what a local one has: no locks (Lustre
// as it is mounted by default, NFS without lockd), no exchange of two folders
// (NFS), no sync of folders or of files (FUSE, SMB). They save, are killed in a
// save, go on, and keep their metrics as on any other.

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct FileSystem {
  std::string name;
  std::string refuses;
};

class FileSystemTest : public testing::TestWithParam<FileSystem> {
 protected:
  ProgramOptions Options(const std::string& fault = "") const {
    ProgramOptions options;
    options.environment["LD_PRELOAD"] = std::filesystem::absolute(
        "tests/e2e/file_systems/librefusing_calls.so");
    options.environment["REFUSE"] = GetParam().refuses;
    if (!fault.empty()) options.environment["TANDEM_FAULT"] = fault;
    return options;
  }
};

TEST_P(FileSystemTest, JobsSaveAndGoOnAsOnAnyOther) {
  const std::string folder = NewFolder("saves");
  const Flags job = SmallJob({"--nproc_per_node=2", "--save_every=2",
                              "--keep_last=2", "--save_dir=" + folder + "/s",
                              "--metrics_file=" + folder + "/m.jsonl",
                              "--resume=auto", "--timeout=30"});
  const std::string straight =
      Fingerprint(RunJobForEvents(SmallJob({"--nproc_per_node=2"})));
  // In the save of step 4.
  const ProgramResult killed =
      RunProgram(kTrain, Joined(job, {"--save_every=4"}),
                 Options("point=folder_rename,rank=0,action=kill"));
  EXPECT_NE(killed.exit_code, 0);
  EXPECT_EQ(NamesIn(folder + "/s").size(), 1u);
  const ProgramResult done = RunProgram(kTrain, job, Options());
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("a save that was never finished"));
  // The first one left no checkpoint: this is another job.
  EXPECT_THAT(done.out, HasSubstr("is " + folder + "/m.jsonl.1 now"));
  EXPECT_EQ(Fingerprint(ReadEvents(folder + "/m.jsonl")), straight);
  EXPECT_THAT(NamesIn(folder + "/s"),
              ElementsAre("step-000000004", "step-000000006"));
  // And so is this.
  const ProgramResult anew = RunProgram(
      kTrain, Joined(job, {"--resume=", "--save_dir=" + folder + "/t"}),
      Options());
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.out, HasSubstr("is " + folder + "/m.jsonl.2 now"));
}

INSTANTIATE_TEST_SUITE_P(
    All, FileSystemTest,
    testing::Values(
        FileSystem{"Lustre", "flock=ENOSYS"},
        FileSystem{"NfsWithoutLocks", "flock=ENOLCK renameat2=EINVAL"},
        FileSystem{"Fuse",
                   "flock=EOPNOTSUPP renameat2=EINVAL "
                   "fsync_folder=EINVAL fsync=EINVAL"},
        FileSystem{"Smb", "renameat2=ENOSYS fsync_folder=EOPNOTSUPP"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
