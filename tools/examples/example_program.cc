#include "tools/examples/example_program.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/fingerprint.h"
#include "core/device/device.h"
#include "core/random/random.h"
#include "core/run/run_program.h"
#include "core/sim/sim.h"
#include "models/toy.h"

ABSL_FLAG(std::string, device, "",
          "Kind of device to run on: cpu, cuda, or sim: simulated devices in "
          "the host's memory. Not given: cuda where there is a GPU; else cpu, "
          "or sim for an example that is about several devices.");
ABSL_FLAG(int64_t, batch_size, 20, "Samples of each rank.");
ABSL_FLAG(int64_t, steps, 10, "Steps to train; all see the same samples.");
ABSL_FLAG(double, learning_rate, 0.001, "Learning rate of SGD.");
ABSL_FLAG(uint64_t, seed, 0, "Seed of weights and samples.");

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(5);  // of every wait for other ranks

std::string DeviceFor(const Example& example) {
  const std::string given = absl::GetFlag(FLAGS_device);
  if (!given.empty()) return given;
  return at::detail::getCUDAHooks().hasCUDA() ? "cuda" : example.device;
}

absl::StatusOr<ExampleOptions> OptionsFromFlags(const Example& example) {
  ExampleOptions options;
  options.device = DeviceFor(example);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.seed = absl::GetFlag(FLAGS_seed);
  if (options.batch_size < 1 || options.steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--batch_size=", options.batch_size, " and --steps=", options.steps,
        ": there must be 1 at least of each"));
  }
  if (!std::isfinite(options.learning_rate) || options.learning_rate <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--learning_rate=", options.learning_rate,
                     ": expected a number above 0"));
  }
  return options;
}

// Before there are simulated devices, ParseDeviceType does not know them.
absl::Status CheckDeviceName(const std::string& device) {
  for (const char* known : {"cpu", "cuda", "sim"}) {
    if (device == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--device=", device, " is not known; known are: cpu, cuda, sim"));
}

absl::StatusOr<std::vector<c10::Device>> DevicesFor(const Example& example,
                                                    const std::string& device,
                                                    const Launch& launch) {
  DeviceRequest request;
  request.local_rank = launch.local_rank;
  request.local_world_size = launch.local_world_size;
  request.devices_per_rank = example.devices_per_rank;
  request.launcher = launch.launcher;
  TANDEM_ASSIGN_OR_RETURN(const c10::DeviceType type, ParseDeviceType(device));
  return DevicesOf(request, type);
}

// Whether this host has devices for all of its ranks. Asked before any rank is
// started, so that there is one line, not one a rank.
absl::Status CheckDevices(const Example& example, const std::string& device,
                          const Launch& first) {
  TANDEM_RETURN_IF_ERROR(CheckDeviceName(device));
  if (device == "sim") {
    const int needed = first.local_world_size * example.devices_per_rank;
    const int most = SimOptions().devices;
    if (needed <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--device=sim: ", first.local_world_size, " ranks with ",
                     example.devices_per_rank, " each need ", needed,
                     " simulated devices, and there are ", most,
                     " at most; start fewer ranks"));
  }
  return Annotate(DevicesFor(example, device, first).status(),
                  absl::StrCat("--device=", device));
}

absl::StatusOr<std::vector<c10::Device>> PrepareDevices(
    const Example& example, const std::string& device, const Launch& launch) {
  if (device == "sim") {
    SimOptions sim;
    sim.devices = launch.local_world_size * example.devices_per_rank;
    TANDEM_RETURN_IF_ERROR(EnableSim(sim));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto devices,
                          DevicesFor(example, device, launch));
  SetCurrentDevice(devices.front());
  return devices;
}

absl::Status CheckFlags(const Example& example, const Launch& first) {
  TANDEM_ASSIGN_OR_RETURN(const ExampleOptions options,
                          OptionsFromFlags(example));
  return CheckDevices(example, options.device, first);
}

absl::Status RunAsRank(const Example& example, Rank& rank) {
  TANDEM_ASSIGN_OR_RETURN(const ExampleOptions options,
                          OptionsFromFlags(example));
  TANDEM_ASSIGN_OR_RETURN(std::vector<c10::Device> devices,
                          PrepareDevices(example, options.device, rank.launch));
  return example.run(ExampleRank{options, rank.world, std::move(devices)});
}

// The mean of every rank's `value`.
absl::StatusOr<double> MeanOverRanks(const ExampleRank& rank, double value) {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  TANDEM_RETURN_IF_ERROR(rank.world.AllReduceSum(sum));
  return sum.item<double>() / rank.world.size();
}

}  // namespace

int RunExample(int argc, char** argv, const Example& example) {
  RunOptions options;
  options.name = example.name;
  options.usage = example.usage;
  options.check = [&](const Launch& first) {
    return CheckFlags(example, first);
  };
  options.communication.timeout = kTimeout;
  options.intra_op_threads = 1;
  return RunProgram(argc, argv, options,
                    [&](Rank& rank) { return RunAsRank(example, rank); });
}

ExampleSamples MakeExampleSamples(const ExampleRank& rank) {
  const int64_t mine = rank.options.batch_size;
  const auto share = [&](const char* name, int64_t width, c10::Device device) {
    return at::randn({rank.world.size() * mine, width},
                     GeneratorFor(rank.options.seed, name))
        .narrow(0, rank.rank() * mine, mine)
        .to(device);
  };
  return {share("inputs", kToyInputs, rank.devices.front()),
          share("labels", kToyOutputs, rank.devices.back())};
}

void Say(const ExampleRank& rank, const std::string& line) {
  if (rank.rank() == 0) absl::PrintF("%s\n", line);
}

absl::Status SayEach(const ExampleRank& rank, const std::string& line) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                          rank.world.AllGatherString(line));
  for (size_t i = 0; i < lines.size(); ++i) {
    Say(rank, absl::StrCat("rank ", i, " ", lines[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CommonFingerprint(const ExampleRank& rank,
                                              const NamedTensors& weights) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          rank.world.AllGatherString(WeightsSha256(weights)));
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    return absl::InternalError(absl::StrCat("weights of rank ", i,
                                            " differ from rank 0's: ", all[i],
                                            " and ", all[0]));
  }
  return all[0];
}

absl::Status SayResult(const ExampleRank& rank, const ExampleResult& result) {
  TANDEM_RETURN_IF_ERROR(SayEach(
      rank, absl::StrFormat("trained %d steps: loss %.6f before, %.6f after",
                            rank.options.steps, result.loss_before,
                            result.loss_after)));
  TANDEM_ASSIGN_OR_RETURN(const double before,
                          MeanOverRanks(rank, result.loss_before));
  TANDEM_ASSIGN_OR_RETURN(const double after,
                          MeanOverRanks(rank, result.loss_after));
  TANDEM_ASSIGN_OR_RETURN(const std::string weights,
                          CommonFingerprint(rank, result.weights));
  Say(rank, absl::StrFormat("all samples: loss %.6f before, %.6f after", before,
                            after));
  Say(rank, absl::StrCat("weights before  ", result.weights_before));
  Say(rank, absl::StrCat("weights after   ", weights, "  on all ranks"));
  return absl::OkStatus();
}

}  // namespace tandem
