// Each way to be a nuisance x each door, while a job trains: it ends in time,
// with the bits that it has undisturbed.

#include "tests/e2e/strangers/strangers.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/program.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = "tests/e2e/strangers/small_job_main";

using Flags = std::vector<std::string>;

// Rank 1 stops itself before it connects, so that the other's doors are open
// until the test has it go on.
ProgramOptions RankOneStops() {
  ProgramOptions options;
  options.environment = {{"TANDEM_FAULT", "point=connect,rank=1,action=stop"}};
  return options;
}

bool IsStopped(pid_t pid) {
  const std::string text = FileContents(absl::StrCat("/proc/", pid, "/stat"));
  return absl::StrContains(text.substr(text.rfind(')') + 1), " T ");
}

// The process that has stopped itself; 0: the program has ended without.
pid_t AwaitStopped(const Program& program) {
  pid_t stopped = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::vector<pid_t> living = program.LivingProcesses();
    for (const pid_t each : living) {
      if (IsStopped(each)) stopped = each;
    }
    return stopped != 0 || living.empty();
  }));
  return stopped;
}

void HaveGoOn(pid_t stopped) {
  ASSERT_NE(stopped, 0) << "rank 1 has not come to where it connects";
  EXPECT_EQ(kill(stopped, SIGCONT), 0);
}

struct Disturbed {
  std::string says;  // the bits of the weights
  std::map<Door, int> connected;
};

Flags JobOn(const std::string& backend) {
  return {"--nproc_per_node=2", "--backend=" + backend};
}

// With strangers that have come to both doors before rank 1 does.
Disturbed Train(const std::string& backend, Door inner,
                const Manners& manners) {
  Program program(kJob, JobOn(backend), RankOneStops());
  Strangers strangers(program, manners);
  const pid_t stopped = AwaitStopped(program);
  Eventually([&] {
    std::map<Door, int> connected = strangers.connected();
    return connected[Door::kStore] >= manners.how_many &&
           connected[inner] >= manners.how_many;
  });
  HaveGoOn(stopped);
  const ProgramResult result = program.Wait();
  strangers.Stop();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return {result.out, strangers.connected()};
}

// What a job on the backend prints that nobody disturbs.
const std::string& Undisturbed(const std::string& backend) {
  static auto* const all = new std::map<std::string, std::string>;
  const auto [it, is_new] = all->try_emplace(backend);
  if (is_new) it->second = RunProgram(kJob, JobOn(backend)).out;
  return it->second;
}

struct Backend {
  std::string name;
  Door inner;
};

class StrangersTest
    : public ::testing::TestWithParam<std::tuple<Backend, Manners>> {};

TEST_P(StrangersTest, NeitherStallNorEndNorChangeAJob) {
  const auto& [backend, manners] = GetParam();
  const std::string& undisturbed = Undisturbed(backend.name);
  ASSERT_THAT(undisturbed, HasSubstr("weights "));
  Disturbed job = Train(backend.name, backend.inner, manners);
  EXPECT_EQ(job.says, undisturbed);
  for (const Door door : {Door::kStore, backend.inner}) {
    std::printf("%-13s %-16s %4d connections\n", NameOf(door).c_str(),
                manners.name.c_str(), job.connected[door]);
    EXPECT_GE(job.connected[door], manners.how_many) << NameOf(door);
  }
}

std::string NameOfCell(
    const ::testing::TestParamInfo<StrangersTest::ParamType>& info) {
  const auto& [backend, manners] = info.param;
  std::string name = absl::StrCat(backend.name, "_", manners.name);
  for (char& each : name) {
    if (!absl::ascii_isalnum(each)) each = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    On, StrangersTest,
    ::testing::Combine(::testing::Values(Backend{"gloo", Door::kGloo},
                                         Backend{"shm", Door::kLocal}),
                       ::testing::ValuesIn(AllManners())),
    NameOfCell);

// With two backends and two doors of each.
TEST(StrangersTableTest, HasTwentyEightCells) {
  EXPECT_EQ(AllManners().size() * 2 * 2, 28);
}

std::string SecretFile(const std::string& secret, mode_t mode) {
  const std::string path = NewFolder("secret") + "/secret";
  std::ofstream(path) << secret;
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

TEST(JobSecretTest, AFileThatOthersReadIsRefusedByName) {
  const std::string path = SecretFile("sixteen bytes or more", 0644);
  const ProgramResult result =
      RunProgram(kJob, {"--nproc_per_node=2", "--job_secret_file=" + path});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr("chmod 600")));
}

TEST(JobSecretTest, AFileThatCannotBeOpenedIsRefusedByName) {
  const std::string loop = NewFolder("secret") + "/loop";
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  const ProgramResult result =
      RunProgram(kJob, {"--nproc_per_node=2", "--job_secret_file=" + loop});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(loop));
}

TEST(JobSecretTest, AStoreInAFileHasNone) {
  const std::string path = SecretFile("sixteen bytes or more", 0600);
  const ProgramResult result =
      RunProgram(kJob, {"--nproc_per_node=2", "--job_secret_file=" + path,
                        "--dist_url=file://" + NewFolder("store") + "/store"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--job_secret_file"));
}

// Two nodes on this machine, of which the second has `more`.
class NodesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Program> Node(int node, const Flags& more) const {
    Flags flags = {"--nnodes=2",
                   "--nproc_per_node=1",
                   "--timeout=20",
                   absl::StrCat("--node_rank=", node),
                   "--master_addr=127.0.0.1",
                   absl::StrCat("--master_port=", port_)};
    flags.insert(flags.end(), more.begin(), more.end());
    return std::make_unique<Program>(kJob, flags);
  }

  const int port_ = FreePort();
  const std::string secret_ = SecretFile("the secret of the job\n", 0600);
};

TEST_F(NodesTest, TheSameSecretInTwoFilesJoins) {
  const std::string copy = SecretFile("the secret of the job", 0400);
  const auto zero = Node(0, {"--job_secret_file=" + secret_});
  const auto one = Node(1, {"--job_secret_file=" + copy});
  const ProgramResult first = zero->Wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(one->Wait().exit_code, 0);
}

TEST_F(NodesTest, AnotherSecretOrNoneIsTurnedAwayAndTheOthersSayHowMany) {
  const std::string another = SecretFile("the secret of another job", 0600);
  const auto zero = Node(0, {"--job_secret_file=" + secret_});
  const auto one = Node(1, {"--job_secret_file=" + another});
  const ProgramResult wrong = one->Wait();
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("its job secret is another one"));
  const auto two = Node(1, {});
  const ProgramResult none = two->Wait();
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("the store asks for the job's secret"));
  const ProgramResult first = zero->Wait();
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_THAT(first.err, AllOf(HasSubstr("did not come within"),
                               HasSubstr("that did not show the job's secret"),
                               HasSubstr("the last from 127.0.0.1:"),
                               HasSubstr(" launcher thread "),
                               Not(HasSubstr("InitGoogleLogging"))));
}

// What the ranks were given is to be read by nobody else.
TEST(JobSecretTest, IsNotInWhatOthersSee) {
  Program program(kJob, JobOn("shm"), RankOneStops());
  const pid_t stopped = AwaitStopped(program);
  const std::string rank = absl::StrCat("/proc/", stopped);
  EXPECT_THAT(FileContents(rank + "/environ"), HasSubstr("TANDEM_LAUNCHER=1"));
  EXPECT_THAT(FileContents(rank + "/cmdline"), Not(HasSubstr("secret")));
  EXPECT_THAT(FileContents(rank + "/environ"),
              HasSubstr(absl::StrCat("TANDEM_JOB_SECRET_FILE=/proc/",
                                     program.pid(), "/fd/")));
  struct stat environ {};
  ASSERT_EQ(stat((rank + "/environ").c_str(), &environ), 0);
  EXPECT_EQ(environ.st_mode & (S_IRWXG | S_IRWXO), 0);
  HaveGoOn(stopped);
  EXPECT_EQ(program.Wait().exit_code, 0);
}

}  // namespace
}  // namespace tandem
