// Runs of //tools:train, as a user starts them, and what they leave. For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_RUNS_H_
#define TANDEM_TESTS_E2E_TRAIN_RUNS_H_

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/program.h"

namespace tandem {

using Flags = std::vector<std::string>;
using Events = std::vector<nlohmann::json>;

constexpr char kTrain[] = "tools/train";
constexpr char kInspect[] = "tools/inspect";

// The device and the backend that the test's environment asks for: with
// TANDEM_TEST_BACKEND=sim_nccl asynchronous simulated devices, with the delays
// of TANDEM_SIM_ASYNC (microseconds) and TANDEM_SIM_SEED; else `usual`.
Flags TestBackendFlags(const Flags& usual = {});

// A job of six steps an epoch that takes a moment: mlp_small on 96 synthetic
// images, without checkpoints, on the test's backend. Later flags override
// earlier ones.
Flags SmallJob(const Flags& more = {});

// All, one behind the other: later flags override earlier ones.
Flags Joined(Flags first, const Flags& second, const Flags& third = {});

// Flags as one types them, "--pipe=2 --microbatches=4", and back.
Flags Words(const std::string& text);
std::string Typed(const Flags& flags);

// SmallJob with flags as one types them.
Flags Small(const std::string& more = "");

// The process of a rank that a program has started; 0: there is none.
pid_t PidOfRank(const Program& program, int rank);

// The lines of a metrics file.
Events ReadEvents(const std::string& path);

// Those of one kind: "step".
Events EventsOf(const Events& events, const std::string& kind);

// Runs a job with a metrics file of its own; expects it to succeed. `program`
// tells of the run, when it is not null.
Events RunJobForEvents(Flags flags, ProgramResult* program = nullptr,
                       const ProgramOptions& options = ProgramOptions());

// The numbers of the steps that they tell of, in their order, and the losses.
std::vector<int> StepsOf(const Events& events);
std::vector<double> StepLosses(const Events& events);
double LastLoss(const Events& events);

// The checkpoint of a step in a folder of them.
std::string SavedStep(const std::string& folder, int step);

// With that in TANDEM_FAULT (core/instrument/fault_point.h).
ProgramOptions FaultOf(const std::string& fault);

// The summary's weights_sha256.
std::string Fingerprint(const Events& events);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_RUNS_H_
