// Kill trial: a job that is killed at some moment, goes on by itself or is
// started again, and must end as one that nobody disturbed. For tests.

#ifndef TANDEM_TESTS_E2E_KILLS_TRIAL_H_
#define TANDEM_TESTS_E2E_KILLS_TRIAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// Where its ranks stand.
struct KilledLayout {
  std::string name;
  int ranks;
  std::vector<std::string> flags;
};
// single, ddp, pipeline and hybrid.
const std::vector<KilledLayout>& KilledLayouts();

// What an undisturbed run of a layout comes to.
struct Undisturbed {
  std::map<int, double> losses;  // by step
  std::string weights_sha256;
  double seconds = 0;
};

struct Trial {
  enum class Victim { kOneRank, kAllRanks, kLauncher };

  const KilledLayout* layout;
  Victim victim;
  int rank = 0;  // of kOneRank
  // When: at a fault point of a save ("write_tensor:3", one rank's), or, if it
  // is empty, after this fraction of the undisturbed run's time.
  std::string point;
  double moment = 0;
  bool asynchronous = false;  // saves
};

// The same for the same numbers: layouts, victims and moments in turn, random
// ones among them.
std::vector<Trial> MakeTrials(int count, uint64_t seed);

// "hybrid, all ranks, after 0.42 of the run".
std::string Describe(const Trial& trial);

Undisturbed RunUndisturbed(const KilledLayout& layout);

struct TrialEnd {
  bool was_hit = false;  // it still ran when it was killed
  int runs = 0;          // that a person, or a script, had to start
  int restarts = 0;      // by the launcher
  std::string problem;   // empty: it ended as it should
};
TrialEnd RunTrial(const Trial& trial, const Undisturbed& undisturbed);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_KILLS_TRIAL_H_
