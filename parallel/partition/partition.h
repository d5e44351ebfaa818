// Model partition: from what --balance says to the cuts of a pipeline, and what
// its stages then hold, of which microbatches, moment by moment. Pure
// functions: layer_profile.h measures, table.h prints.

#ifndef TANDEM_PARALLEL_PARTITION_PARTITION_H_
#define TANDEM_PARALLEL_PARTITION_PARTITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/balance.h"
#include "parallel/schedule/activation_checkpointing.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulation.h"

namespace tandem {

// Microbatches in flight, which a schedule's devices keep from forward to
// backward: by device, its stages as parts. A microbatch is kept from its
// forward to the end of its backward (of the second part, where there are two):
// its input, and its activations, unless these are computed again; then they
// are there from the beginning of backward on.
std::vector<BalanceDevice> KeptMicrobatches(
    const Schedule& schedule,
    ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever);

// How many microbatches each stage keeps at once, at most.
std::vector<int> MicrobatchesAlive(const Schedule& schedule);

// The part of the microbatches whose forward is computed twice.
double RecomputedShare(ActivationCheckpointing checkpointing, int microbatches);

enum class BalanceKind {
  kUniform,     // as many layers each
  kParameters,  // the largest stage as small as can be
  kProfile,     // the slowest stage as fast as can be
  kType,        // as many layers of some types each
  kCuts,        // as given
};

struct BalanceRule {
  BalanceKind kind = BalanceKind::kParameters;
  std::string text = {};  // the types' expression, or the cuts
};

// "uniform", "parameters", "profile", "type:REGEX"; anything else is taken for
// cuts (ParseCuts, which knows the layers). Empty: by parameters.
// InvalidArgument for a bad expression.
absl::StatusOr<BalanceRule> ParseBalance(absl::string_view flag);

// What is known of the layers that are to be cut.
struct ModelOutline {
  std::vector<std::string> names;
  std::vector<std::string> types;
  std::vector<int64_t> parameters;  // elements; see ParameterCounts
  std::optional<ModelProfile> profile = std::nullopt;  // kProfile needs it
};

// Between the devices of two stages, one way.
struct SendingCost {
  double seconds_per_message = 0;
  double seconds_per_byte = 0;
};

struct PipelineDevices {
  SendingCost sending = {};
  int64_t device_bytes = 0;  // memory of each; 0: no limit
  // What is computed twice takes time instead of memory.
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever;
};

// The cuts between the schedule's stages. By profile, the slowest device is as
// fast as can be, with all of its stages, which share its memory as each needs
// it; where devices have several, the cuts whose slowest stage is fastest are
// taken instead if they fit and the step that is predicted with them is
// shorter.
// InvalidArgument for cuts or types that do not fit the layers, fewer layers
// than stages, or no profile where one is needed; ResourceExhausted when
// nothing fits.
absl::StatusOr<Cuts> PartitionModel(const BalanceRule& rule,
                                    const ModelOutline& model,
                                    const Schedule& schedule,
                                    const PipelineDevices& devices = {});

struct StageMemory {
  // With the most that is gathered at a time; a tied weight once.
  int64_t state = 0;
  int64_t activations = 0;  // of all microbatches alive, with their inputs
  // What an evaluation has instead of these (LayerCost), at most.
  int64_t evaluation = 0;
};
std::vector<StageMemory> StageMemories(
    const ModelProfile& profile, const Cuts& cuts, const Schedule& schedule,
    ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever);

// By device: its stages' state, and what they keep at once in a step or have in
// an evaluation, at most.
std::vector<int64_t> DeviceMemories(
    const ModelProfile& profile, const Cuts& cuts, const Schedule& schedule,
    ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever);

// Whether all of that is within `devices.device_bytes`.
bool FitsDevices(const ModelProfile& profile, const Cuts& cuts,
                 const Schedule& schedule, const PipelineDevices& devices);

// What PredictSchedule takes: the stages' times, with what is computed twice,
// and the mean time of a message between devices.
ScheduleCosts MakeScheduleCosts(
    const ModelProfile& profile, const Cuts& cuts, const Schedule& schedule,
    const SendingCost& sending,
    ActivationCheckpointing checkpointing = ActivationCheckpointing::kNever);

// Seconds that a step of the schedule is predicted to take, with these cuts.
// Errors of PredictSchedule.
absl::StatusOr<double> PredictedStep(const ModelProfile& profile,
                                     const Cuts& cuts, const Schedule& schedule,
                                     const PipelineDevices& devices);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARTITION_PARTITION_H_
