// Jobs over two hosts, however started, end with the bits of one host; a host
// that does not reach itself; and a link that fails in the middle of a job, or
// a host that dies: whoever is left ends within the timeout, or starts again as
// often as it may, and names who is gone.

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/faults/fault_ranks.h"
#include "tests/e2e/network_hosts/host_jobs.h"

namespace tandem {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Cell {
  std::string name;
  int ranks_of_each;
  Flags flags;
};

const Cell kOverGloo = {"ddp over gloo", 1, {"--backend=gloo"}};
const Cell kCells[] = {
    // Shared memory inside hosts, Gloo between them.
    {"ddp over shm, 2 ranks a host",
     2,
     {"--backend=shm", "--microbatch_size=4", "--reproducible"}},
    {"hybrid, 2 ranks a host",
     2,
     {"--pipe=2", "--microbatch_size=4", "--reproducible"}},
    {"parameters shared by all, 2 ranks a host",
     2,
     {"--shard=parameters", "--microbatch_size=4", "--reproducible"}},
    {"parameters shared inside hosts, 2 ranks a host",
     2,
     {"--shard=parameters", "--data_shard=2", "--microbatch_size=4",
      "--reproducible"}},
    // A sum of two replicas has one order.
    {"tensor inside hosts, parameters shared between them",
     2,
     {"--model=gpt_tiny", "--dataset=synthetic_tokens", "--synthetic_shape=",
      "--context=16", "--tensor=2", "--shard=parameters"}},
};

Flags JobOf(const Cell& cell) {
  return Joined(SmallJob({"--max_steps=6", "--timeout=60"}), cell.flags);
}

class SeveralHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why_not().empty()) GTEST_SKIP() << hosts_.why_not();
  }

  // Host 0's, whose rank 0 writes the metrics; all end well.
  template <typename Start>
  std::string FingerprintOf(const Cell& cell, Start start) {
    const std::string metrics = NewFolder("metrics") + "/metrics.jsonl";
    ExpectAllEndWell(start(Joined(JobOf(cell), {"--metrics_file=" + metrics})));
    return Fingerprint(ReadEvents(metrics));
  }
  std::string FingerprintOfOneHost(const Cell& cell) {
    return Fingerprint(RunJobForEvents(Joined(
        JobOf(cell),
        {"--nproc_per_node=" + std::to_string(2 * cell.ranks_of_each)})));
  }

  NetworkHosts hosts_{2};
};

TEST_F(SeveralHostsTest, TwoLaunchersEndWithTheBitsOfOneHost) {
  int cells = 0;
  for (const Cell& cell : kCells) {
    std::cout << "cell: two launchers, " << cell.name << "\n";
    EXPECT_EQ(FingerprintOf(cell,
                            [&](const Flags& flags) {
                              return StartLaunchers(hosts_, cell.ranks_of_each,
                                                    flags);
                            }),
              FingerprintOfOneHost(cell))
        << cell.name;
    ++cells;
  }
  std::cout << cells << " cells\n";
}

TEST_F(SeveralHostsTest, SoDoRanksThatTorchrunAndSlurmStart) {
  const Cell& cell = kCells[0];
  const std::string one_host = FingerprintOfOneHost(cell);
  std::cout << "cell: as torchrun, " << cell.name << "\n";
  EXPECT_EQ(FingerprintOf(cell,
                          [&](const Flags& flags) {
                            return StartAsTorchrun(hosts_, cell.ranks_of_each,
                                                   flags);
                          }),
            one_host);
  std::cout << "cell: as srun, " << cell.name << "\n";
  EXPECT_EQ(FingerprintOf(cell,
                          [&](const Flags& flags) {
                            return StartAsSlurm(hosts_, cell.ranks_of_each,
                                                flags);
                          }),
            one_host);
  std::cout << "2 cells\n";
}

// So slow that what a step exchanges takes a noticeable time.
TEST_F(SeveralHostsTest, ASlowLinkChangesNoBit) {
  if (!NetworkHosts::CanDelay()) {
    std::cout << "this kernel cannot delay packets (netem): the link's rate "
                 "is limited alone (tbf)\n";
  }
  for (int host = 0; host < 2; ++host) hosts_.Slow(host, 2000, 20);
  const Cell& cell = kOverGloo;
  EXPECT_EQ(FingerprintOf(cell,
                          [&](const Flags& flags) {
                            return StartLaunchers(hosts_, 1, flags);
                          }),
            FingerprintOfOneHost(cell));
}

// The store's own host has another address, and loopback.
TEST_F(SeveralHostsTest, TheStoreListensOnTheGivenAddressAlone) {
  const Programs programs = StartLaunchers(
      hosts_, 1,
      Joined(JobOf(kOverGloo),
             {"--epochs=1000", "--max_steps=0", "--learning_rate=0.001"}));
  ASSERT_TRUE(programs[0]->WaitForOutput("/6000")) << programs[0]->Wait().err;
  const auto listening = hosts_.Start(
      0, "/bin/sh", {"-c", "PATH=$PATH:/usr/sbin:/sbin; ss -Htln"});
  const std::string sockets = listening->Wait().out;
  EXPECT_THAT(sockets, HasSubstr(hosts_.Address(0) + ":29500"));
  for (const char* elsewhere : {"0.0.0.0:", "127.0.0.1:", "*:*:", "[::]:"}) {
    EXPECT_EQ(sockets.find(std::string(" ") + elsewhere + "29500"),
              std::string::npos)
        << sockets;
  }
}

// /tmp is such a folder, or a home that is not shared.
TEST_F(SeveralHostsTest, ASaveFolderOfEachHostsOwnIsRefusedBeforeTraining) {
  const std::string folder = NewFolder("own");
  for (int host = 0; host < 2; ++host) {
    const ProgramResult mounted =
        hosts_
            .Start(host, "/bin/sh",
                   {"-c", "PATH=$PATH:/usr/sbin:/sbin; mount -t tmpfs none " +
                              folder})
            ->Wait();
    ASSERT_EQ(mounted.exit_code, 0) << mounted.err;
  }
  const Programs programs = StartLaunchers(
      hosts_, 1, Joined(JobOf(kOverGloo), {"--save_dir=" + folder}));
  std::vector<int> exit_codes;
  std::string err;
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait();
    EXPECT_NE(result.exit_code, 0);
    exit_codes.push_back(result.exit_code);
    EXPECT_THAT(result.out, Not(HasSubstr("  loss ")));
    err += result.err;
  }
  // A launcher may have ended the rank that was the last to say so.
  EXPECT_THAT(exit_codes, Contains(2)) << err;
  EXPECT_THAT(err, HasSubstr("--save_dir=" + folder +
                             ": this rank does not see what rank 0 has made"));
}

// A container that was given no network is such a host.
TEST_F(SeveralHostsTest, WithoutLoopbackALauncherSaysSoAtOnce) {
  hosts_.DropLoopback(0);
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result =
      hosts_.Start(0, kTrain, SmallJob({"--nproc_per_node=2"}))->Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("ip link set lo up"));
}

// What one host says of the other.
constexpr char kRankGone[] = "not heard of: rank 1";
constexpr char kStoreGone[] =
    "not heard of: the launcher, which serves the store: it does not answer "
    "(10.77.0.1:29500)";

class HostFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why_not().empty()) GTEST_SKIP() << hosts_.why_not();
  }

  // It runs until something ends it, in the middle of its steps.
  Programs StartLongJob(const Flags& more = {}) {
    Programs programs = StartLaunchers(
        hosts_, 1, Joined(FaultJob("gloo", kShortTimeout), more));
    EXPECT_TRUE(programs[0]->WaitForOutput("loss"));
    fault_ = steady_clock::now();
    return programs;
  }

  // Within the timeout and what it takes to say so.
  ProgramResult Survivor(Program& program) {
    const ProgramResult result = program.Wait();
    EXPECT_LT(steady_clock::now() - fault_, seconds(kShortTimeout) + kTimeToSay)
        << result.err;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("of group \"world\""));
    return result;
  }

  NetworkHosts hosts_{2};
  steady_clock::time_point fault_;
};

TEST_F(HostFaultsTest, ALostLinkEndsBothSidesWhichNameEachOther) {
  for (const bool is_cut : {false, true}) {
    std::cout << "cell: " << (is_cut ? "a cut link" : "lost packets") << "\n";
    const Programs programs = StartLongJob();
    is_cut ? hosts_.Cut(1) : hosts_.Drop(1);
    EXPECT_THAT(Survivor(*programs[0]).err, HasSubstr(kRankGone));
    EXPECT_THAT(Survivor(*programs[1]).err, HasSubstr(kStoreGone));
    hosts_.Mend(1);
  }
  std::cout << "2 cells\n";
}

TEST_F(HostFaultsTest, ADeadHostIsNamed) {
  for (const int dead : {1, 0}) {
    std::cout << "cell: host " << dead << " dies\n";
    const Programs programs = StartLongJob();
    hosts_.Kill(dead);
    EXPECT_THAT(Survivor(*programs[1 - dead]).err,
                HasSubstr(dead == 1 ? kRankGone : kStoreGone));
    hosts_.Mend(dead);
  }
  std::cout << "2 cells\n";
}

// Node 0's launcher serves the store where launchers agree on an attempt.
TEST_F(HostFaultsTest, NoJobOutlivesTheHostOfTheStore) {
  const Programs programs = StartLongJob({"--max_restarts=2"});
  hosts_.Kill(0);
  EXPECT_THAT(Survivor(*programs[1]).err,
              AllOf(HasSubstr("cannot restart with the other nodes"),
                    HasSubstr("10.77.0.1:29500")));
}

}  // namespace
}  // namespace tandem
