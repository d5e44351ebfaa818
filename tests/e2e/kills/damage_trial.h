// Damage trial: a checkpoint of which one file has had an accident. A job that
// goes on must see it, and take the checkpoint before. For tests.

#ifndef TANDEM_TESTS_E2E_KILLS_DAMAGE_TRIAL_H_
#define TANDEM_TESTS_E2E_KILLS_DAMAGE_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct DamageTrial {
  enum class Damage { kBit, kCut, kLonger, kZeros, kMissing };

  std::string file;  // of the checkpoint
  Damage damage = Damage::kBit;
  double place = 0;  // in the file: from 0 to below 1
  int bit = 0;       // of kBit
};

// How many in a row have each damage of each file.
int DamageCells();

// The same for the same numbers: damages and files in turn, random places.
std::vector<DamageTrial> MakeDamageTrials(int count, uint64_t seed);

// "manifest.json, cut off".
std::string KindOf(const DamageTrial& trial);
// "manifest.json, cut off, at 0.420 of it".
std::string Describe(const DamageTrial& trial);

// A pipeline on two ranks that has ended after step 4 with a checkpoint of it,
// and with one of step 2.
class DamagedJob {
 public:
  DamagedJob();
  // Goes on from a copy of its checkpoints, of which the newest is damaged.
  // Empty: the file was named, the job went on from step 2, and has ended with
  // the bits of one that was never stopped; else what went wrong.
  std::string Run(const DamageTrial& trial) const;

 private:
  std::string folder_;
  std::string weights_sha256_;  // of the one that was never stopped
};

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_KILLS_DAMAGE_TRIAL_H_
