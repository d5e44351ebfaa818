// Contenders: a side of a comparison that chooses its setting, and is measured.
//
// Losses of two sides, compared: do they train the same?

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_CONTENDER_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_CONTENDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/case/case.h"
#include "tools/bench/process/side.h"

namespace tandem {

// How far losses of a dtype may differ, relative to the peer's: both sides add
// in another order, and in bf16 they also round activations at other places (a
// fused kernel once, where PyTorch's operators round several times), which is
// some units of 2^-9 on each of a few hundred activations that a loss is a mean
// of; training moves them apart.
double LossTolerance(const std::string& dtype);

// Internal, naming the first step at which the losses differ by more than the
// tolerance, or one that is not finite.
absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers, double tolerance);

// Tandem's of the first steps, by the number of microbatches of all replicas:
// BatchNorm makes them differ. Schedules, cuts, chunks and layouts do not.
class KnownLosses {
 public:
  explicit KnownLosses(const std::string& dtype)
      : tolerance_(LossTolerance(dtype)) {}

  // Internal as CompareLosses, or where there are none to compare with.
  absl::Status Check(int microbatches, const std::string& peer,
                     const std::vector<double>& losses) const;
  // The first of a number of microbatches are kept; later ones are checked.
  absl::Status Record(int microbatches, const std::string& name,
                      const std::vector<double>& losses);

 private:
  double tolerance_;
  std::map<int, std::vector<double>> losses_;
};

// Floor of a step of ours on one core: its products by themselves, and what its
// other operators move at the rate at which memory is read and written.
struct MeasuredFloor {
  double products_ms = 0;
  double moved_bytes = 0;
  double gb_per_s = 0;   // of a core, while all cores move
  nlohmann::json parts;  // of rank 0's step: see step_floor.h

  double MovingMs(double bytes) const { return bytes / gb_per_s * 1e-6; }
  double ms() const { return products_ms + MovingMs(moved_bytes); }
};

// Times are in milliseconds; where ranks differ, they are the slowest rank's.
struct SideResult {
  std::string name;              // "tandem", or a peer's
  std::string failure = {};      // why there are no figures; empty: there are
  Setting setting = {};          // the fastest of those it could choose from
  std::string kernels = {};      // whose multiply, on which instructions
  std::vector<double> step_ms;   // by round
  std::vector<double> alone_ms;  // by round: a core's step of the whole model,
                                 // with the other cores equally busy
  std::vector<double> cpu_ms;    // by round: processor time of a step
  std::vector<double> faults;    // by round: page faults of a step
  double comm_ms = 0;            // while a bucket was on its way
  double exposed_ms = 0;         // of that, without computation beside it
  double peak_mib = 0;           // the most memory of a rank
  std::optional<MeasuredFloor> floor = {};  // of all of a replica's samples

  bool failed() const { return !failure.empty(); }
};

struct CaseResult {
  Case bench;
  SideResult ours;
  std::vector<SideResult> peers;
};

class Contender {
 public:
  // The side's ranks understand the commands of tools/bench/rank/server.h, a
  // peer's the first ones of them.
  Contender(std::string name, std::unique_ptr<Side> side, int replicas);
  // One that could not be started.
  Contender(std::string name, const absl::Status& failure);

  const std::string& name() const { return name_; }
  // Once not OK it stays so, and the side is gone.
  const absl::Status& status() const { return status_; }

  // What each rank answers.
  absl::StatusOr<std::vector<nlohmann::json>> Ask(const std::string& command);

  // Learns the losses of the first steps with this setting.
  absl::Status RecordLosses(const Setting& setting, int64_t steps,
                            KnownLosses& losses);

  // Has the side use the fastest of the settings. Before one is timed, its
  // losses must be known ones; with `records` new ones become known. A single
  // setting is not timed.
  absl::Status Choose(const std::vector<Setting>& settings,
                      int64_t compared_steps, bool records,
                      KnownLosses& losses);
  // What was tried then, the fastest first.
  const std::vector<Setting>& ranking() const { return ranking_; }

  // One round of the setting in use.
  absl::Status MeasureStep(int64_t steps);
  // One round without the other ranks.
  absl::Status MeasureAlone(int64_t steps);
  // How long gradients are on their way, and what of it is exposed.
  absl::Status MeasureCommunication(int64_t steps);
  // The most of a rank so far.
  absl::Status MeasureMemory();
  // After the memory, for it makes models of its own.
  absl::Status MeasureFloor();

  // What was measured since Choose or the last call; of one that failed, why.
  SideResult TakeResult();

 private:
  // A setting, and its time once it was tried.
  struct Tried {
    Setting setting;
    double ms;
  };

  absl::Status CheckLosses(const Setting& setting, int64_t steps, bool records,
                           KnownLosses& losses);
  absl::Status Rank(int64_t compared_steps, bool records, KnownLosses& losses,
                    std::vector<Tried>& tried);
  absl::Status Fail(const absl::Status& status);

  std::string name_;
  std::unique_ptr<Side> side_;
  int replicas_ = 1;
  absl::Status status_;
  std::vector<Setting> ranking_;
  std::string kernels_;
  SideResult result_;
};

// The contenders take turns; who begins changes, for whoever comes first finds
// another machine than who comes second. Those that have failed are left out.
// The first error of `work` ends it.
absl::Status TakeTurns(int rounds, const std::vector<Contender*>& contenders,
                       absl::FunctionRef<absl::Status(Contender&)> work);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_CONTENDER_H_
