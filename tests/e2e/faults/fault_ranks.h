// Ranks of a training job of which one is to fail, and whom they then name. For
// tests.

#ifndef TANDEM_TESTS_E2E_FAULTS_FAULT_RANKS_H_
#define TANDEM_TESTS_E2E_FAULTS_FAULT_RANKS_H_

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {

constexpr int kFaultRanks = 3;

// --timeout, in seconds. The short one is what finds a frozen rank: less than
// a hang takes, more than a rank is late because others have the processor. It
// is that of the ranks' meeting, too: such jobs start one at a time
// (StartTurn).
constexpr int kShortTimeout = 8;
// Plays no part: a death, or a failure, is to be noticed at once.
constexpr int kLongTimeout = 60;

// From the end of the short timeout, or from a death, until every rank has
// ended. A job that only its long timeout ended would take twice as long; how
// busy the machine is does not show.
constexpr std::chrono::seconds kTimeToSay(kLongTimeout / 2);

// --backend, and the devices that it is for.
Flags BackendFlags(const std::string& backend);

// A job that goes on until something ends it, with four buckets.
Flags FaultJob(const std::string& backend, int timeout_s);

// TANDEM_FAULT: what rank `rank` does at `point` of step 3.
std::string FaultAt(const std::string& point, int rank,
                    const std::string& action);

// The tests of a suite, by its full name ("Cells/FaultTest"), in this program.
int TestsIn(const std::string& suite);

// What those four hold; names as in messages.
extern const char* const kFaultBuckets[4];

// The ranks that `said` calls dead, missing or gone, and no others: not those
// that "failed in" something, as survivors do.
std::set<int> RanksBlamed(const std::string& said);

// The same of a job whose ranks wait for each other in several groups, where
// one may wait in vain for a rank that is itself waiting for the culprit: those
// that are awaited count only if none is called dead, gone or not heard of.
std::set<int> CausesNamed(const std::string& said);

// Started without tandem's launcher, which would stop the survivors before they
// have found out for themselves. Rank 0 serves the store.
class FaultRanks {
 public:
  using Clock = std::chrono::steady_clock;

  // `fault` is TANDEM_FAULT of all; `more` are further flags of the culprit.
  // Waits until the culprit has come to its fault, if there is one.
  FaultRanks(const Flags& flags, int culprit, const std::string& fault,
             const Flags& more = {}, int ranks = kFaultRanks);

  Program& operator[](int rank) { return *ranks_[rank]; }
  std::vector<int> survivors() const;

  // Waits until the culprit is dead or frozen; false if that does not come.
  bool AwaitFault();

  // Ends the frozen one, too; then nothing may be left.
  void ExpectNoProcessLeft();

 private:
  bool CulpritIsOut() const;

  const int culprit_;
  std::vector<std::unique_ptr<Program>> ranks_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_FAULTS_FAULT_RANKS_H_
