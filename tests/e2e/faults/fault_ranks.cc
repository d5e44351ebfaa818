#include "tests/e2e/faults/fault_ranks.h"

#include <signal.h>

#include <iostream>
#include <regex>

#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"

namespace tandem {
namespace {

// Adds every number that `number` finds in the first group of `list`.
void AddNumbers(const std::string& said, const std::regex& list,
                const std::regex& number, std::set<int>* numbers) {
  const std::sregex_iterator end;
  for (std::sregex_iterator part(said.begin(), said.end(), list); part != end;
       ++part) {
    const std::string names = (*part)[1];
    for (std::sregex_iterator one(names.begin(), names.end(), number);
         one != end; ++one) {
      numbers->insert(std::stoi((*one)[1]));
    }
  }
}

// "0 (pid 123), 2 (pid 125)".
constexpr char kWithPid[] =
    "ranks? ([0-9]+ \\(pid [0-9]+\\)(, [0-9]+ \\(pid [0-9]+\\))*)";

// Called dead, gone or not heard of.
std::set<int> RanksGone(const std::string& said) {
  static const std::regex plain("not heard of: ranks? ([0-9]+(, [0-9]+)*)");
  static const std::regex gone(std::string(kWithPid) + " (died|left)");
  static const std::regex number("([0-9]+)");
  static const std::regex rank("([0-9]+) \\(pid");
  std::set<int> ranks;
  AddNumbers(said, plain, number, &ranks);
  AddNumbers(said, gone, rank, &ranks);
  return ranks;
}

std::set<int> RanksAwaited(const std::string& said) {
  static const std::regex awaited("waiting for " + std::string(kWithPid));
  static const std::regex rank("([0-9]+) \\(pid");
  std::set<int> ranks;
  AddNumbers(said, awaited, rank, &ranks);
  return ranks;
}

}  // namespace

const char* const kFaultBuckets[4] = {
    "fc8.weight, fc8.bias, fc7.weight, fc7.bias, fc6.weight",
    "fc6.bias, fc5.weight, fc5.bias, fc4.weight",
    "fc4.bias, fc3.weight, fc3.bias, fc2.weight",
    "fc2.bias, fc1.weight, fc1.bias",
};

Flags BackendFlags(const std::string& backend) {
  Flags flags = {"--backend=" + backend};
  if (backend == "sim_nccl") flags.push_back("--device=sim");
  return flags;
}

std::string FaultAt(const std::string& point, int rank,
                    const std::string& action) {
  return "point=" + point + ",rank=" + std::to_string(rank) +
         ",step=3,action=" + action;
}

int TestsIn(const std::string& suite) {
  const auto& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& each = *all.GetTestSuite(s);
    if (each.name() == suite) return each.total_test_count();
  }
  return 0;
}

Flags FaultJob(const std::string& backend, int timeout_s) {
  return Joined(Small("--epochs=1000 --batch_size=12 --bucket_cap_mb=0.02 "
                      "--timeout=" +
                      std::to_string(timeout_s)),
                BackendFlags(backend));
}

std::set<int> RanksBlamed(const std::string& said) {
  std::set<int> blamed = RanksGone(said);
  const std::set<int> awaited = RanksAwaited(said);
  blamed.insert(awaited.begin(), awaited.end());
  return blamed;
}

std::set<int> CausesNamed(const std::string& said) {
  const std::set<int> gone = RanksGone(said);
  return gone.empty() ? RanksAwaited(said) : gone;
}

FaultRanks::FaultRanks(const Flags& flags, int culprit,
                       const std::string& fault, const Flags& more, int ranks)
    : culprit_(culprit) {
  const StartTurn turn;
  const std::string port = std::to_string(FreePort());
  for (int rank = 0; rank < ranks; ++rank) {
    ProgramOptions options;
    options.environment = {{"RANK", std::to_string(rank)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(ranks)},
                           {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port},
                           {"TANDEM_FAULT", fault}};
    ranks_.push_back(std::make_unique<Program>(
        kTrain, rank == culprit ? Joined(flags, more) : flags, options));
  }
  if (!fault.empty()) ranks_[culprit]->WaitForOutput("TANDEM_FAULT acts at");
}

std::vector<int> FaultRanks::survivors() const {
  std::vector<int> others;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (r != culprit_) others.push_back(r);
  }
  return others;
}

bool FaultRanks::AwaitFault() {
  return Eventually([this] { return CulpritIsOut(); });
}

// Stopped by SIGSTOP, or dead.
bool FaultRanks::CulpritIsOut() const {
  const std::string stat = FileContents(
      "/proc/" + std::to_string(ranks_[culprit_]->pid()) + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return true;
  const char state = stat[name_end + 2];
  return state == 'T' || state == 'Z' || state == 'X';
}

void FaultRanks::ExpectNoProcessLeft() {
  ranks_[culprit_]->Signal(SIGKILL);
  const ProgramResult culprit = ranks_[culprit_]->Wait();
  if (testing::Test::HasFailure()) {
    std::cout << "rank " << culprit_ << " ended with " << culprit.exit_code
              << " and said:\n"
              << culprit.err << "\n";
  }
  for (const auto& rank : ranks_) {
    EXPECT_TRUE(rank->LivingProcesses().empty());
  }
}

}  // namespace tandem
