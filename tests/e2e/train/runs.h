// Runs of //tools:train, as a user starts them, and what they leave; the places
// where a pipeline can be; token files of a made-up text. For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_RUNS_H_
#define TANDEM_TESTS_E2E_TRAIN_RUNS_H_

#include <sys/types.h>

#include <cstdint>
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

// What makes a launcher on this machine, with one rank, node `node` of so many;
// node 0's serves the store at this port.
Flags NodeFlags(int nodes, int node, int port);

// The process of a rank that a program has started; 0: there is none.
pid_t PidOfRank(const Program& program, int rank);

// Sends a signal to a program, or to its process of a rank, and waits. Expects
// that the program ends with it (128 + signal) and that no process is left.
ProgramResult StopBySignal(Program& program, int signal_number);
ProgramResult StopBySignalToRank(Program& program, int rank, int signal_number);

// The lines of a metrics file.
Events ReadEvents(const std::string& path);

// The events of one kind: "step".
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

// The models that make a cut hard, and a plain one: mlp_small, gpt_tiny_tied
// (tied weights), unet_tiny (skips), mlp_dropout, resnet18 (BatchNorm).
const std::vector<std::string>& PipelineModels();

// Some steps of `model` on tiny synthetic data, and an evaluation: of one
// device, unless flags of a place follow.
Flags TinyJob(const std::string& model, const Flags& more = {});
// With flags as one types them.
Flags Tiny(const std::string& model, const std::string& more = "");

// The epoch of TinyJob, in steps.
constexpr int kTinySteps = 4;

// Where a pipeline is.
struct PipelinePlace {
  std::string name;
  int devices;  // in all
  Flags flags;
};

// Devices of one process, simulated and not, ranks, and both.
const std::vector<PipelinePlace>& PipelinePlaces();
// The first, by name.
const PipelinePlace& PlaceNamed(const std::string& name);

// What both runs report in each step and evaluation is the same, to this
// relative difference; returns the largest.
double ExpectSameLosses(const Events& events, const Events& expected,
                        double tolerance, const std::string& name);

// A text of few words, each with a space behind it: a byte a token, and two
// bytes each in the file, as nanoGPT's are.
void WriteText(const std::string& path, int words, uint32_t seed);

// A new folder, under the test's temporary one, with train.bin (2000 words) and
// val.bin (200).
std::string NewText(const std::string& name);

// The same of 400 tokens each, numbers below 32, some of them more often: for
// the models of tests/models/hugging_face/testdata.
std::string NewTokens(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_RUNS_H_
