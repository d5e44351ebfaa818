// What SyncBatchNorm costs: steps of ResNet-18 under DDP whose layers normalise
// by a rank's own samples, and by those of all ranks, in turns.
//
//   bazel run //tools/bench:sync_batch_norm_benchmark
//   bazel run //tools/bench:sync_batch_norm_benchmark -- --ranks=4 --nopin
//
// A row for each number of samples a rank: milliseconds of a step as rank 0
// sees it (forward, backward, SGD with momentum; 10 classes, images of
// --image), medians of rounds, and the time of a step's collectives for
// statistics with nothing in between.

#include <ATen/Functions.h>
#include <glog/logging.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/program/exit_code.h"
#include "core/random/random.h"
#include "core/store/store.h"
#include "models/classification_loss.h"
#include "models/resnet.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(int, ranks, 2, "processes");
ABSL_FLAG(std::vector<std::string>, samples,
          std::vector<std::string>({"2", "8", "32"}), "of a rank in a step");
ABSL_FLAG(int64_t, image, 64, "height and width");
ABSL_FLAG(int, rounds, 9, "how often each way takes its turn");
ABSL_FLAG(int, steps, 3, "of a turn, of which the mean is taken");
ABSL_FLAG(bool, pin, true, "rank r keeps to the r-th core");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout(2);
// Of ResNet-18, and the numbers of their channels.
const std::vector<int64_t>& NormChannels() {
  static const auto* const channels = new std::vector<int64_t>{
      64,  64,  64,  64,  64,  128, 128, 128, 128, 128,
      256, 256, 256, 256, 256, 512, 512, 512, 512, 512};
  return *channels;
}

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

absl::StatusOr<std::unique_ptr<MeshStrategy>> MakeStrategy(
    bool normalises_together, Communicator& world) {
  ResnetOptions resnet;
  resnet.classes = 10;
  MeshStrategyOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.schedule, MakeSchedule("1f1b", {1, 1, 1}));
  options.devices = {c10::kCPU};
  options.optimizer = SgdOptions{0.9};
  options.sync_batch_norm = normalises_together;
  return MeshStrategy::Create(Resnet18(resnet), CrossEntropy, options, &world);
}

absl::StatusOr<double> TimeSteps(MeshStrategy& strategy, const Batch& batch,
                                 Communicator& world) {
  const int steps = absl::GetFlag(FLAGS_steps);
  TANDEM_RETURN_IF_ERROR(world.Barrier());
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) {
    TANDEM_RETURN_IF_ERROR(strategy.TrainStep(batch, 0.01).status());
  }
  return MillisecondsSince(start) / steps;
}

// Those of a step, with nothing in between.
absl::StatusOr<double> TimeCollectives(Communicator& world) {
  TANDEM_RETURN_IF_ERROR(world.Barrier());
  const auto start = Clock::now();
  for (const int64_t channels : NormChannels()) {
    TANDEM_RETURN_IF_ERROR(
        world.AllGather(at::zeros({2 * channels + 1}, at::kDouble)).status());
  }
  for (const int64_t channels : NormChannels()) {
    TANDEM_RETURN_IF_ERROR(
        world.AllReduceSum(at::zeros({2 * channels}, at::kDouble)));
  }
  return MillisecondsSince(start);
}

absl::Status MeasureSize(int64_t samples, MeshStrategy& apart,
                         MeshStrategy& together, Communicator& world) {
  const int64_t image = absl::GetFlag(FLAGS_image);
  const at::Generator generator =
      GeneratorFor(1, absl::StrCat("batch of ", world.rank()));
  const Batch batch = {at::randn({samples, 3, image, image}, generator),
                       at::randint(10, {samples}, generator, at::kLong),
                       samples};
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MediansInTurns(absl::GetFlag(FLAGS_rounds), 3,
                     [&](size_t way) -> absl::StatusOr<double> {
                       if (way == 2) return TimeCollectives(world);
                       return TimeSteps(way == 0 ? apart : together, batch,
                                        world);
                     }));
  if (world.rank() != 0) return absl::OkStatus();
  std::printf("%7lld  %13.2f  %17.2f  %+9.1f %%  %15.2f\n",
              static_cast<long long>(samples), medians[0], medians[1],
              100 * (medians[1] / medians[0] - 1), medians[2]);
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> SizesFromFlags() {
  std::vector<int64_t> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_samples)) {
    if (!absl::SimpleAtoi(text, &sizes.emplace_back()) || sizes.back() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--samples: '", text, "' is no number from 1"));
    }
  }
  return sizes;
}

absl::Status RunRank(const StorePtr& store, int rank) {
  const int size = absl::GetFlag(FLAGS_ranks);
  if (absl::GetFlag(FLAGS_pin)) {
    TANDEM_RETURN_IF_ERROR(BindToCore(CoreOf(rank, size)));
  }
  CommunicatorOptions options;
  options.timeout = kTimeout;
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> world,
      Communicator::Create(store, rank, size, "world", options));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesFromFlags());
  TANDEM_ASSIGN_OR_RETURN(const auto apart, MakeStrategy(false, *world));
  TANDEM_ASSIGN_OR_RETURN(const auto together, MakeStrategy(true, *world));
  if (rank == 0) {
    std::printf("samples  BatchNorm, ms  SyncBatchNorm, ms  difference  %s\n",
                "collectives, ms");
  }
  for (const int64_t samples : sizes) {
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] { return MeasureSize(samples, *apart, *together, *world); }));
  }
  return world->Barrier();
}

absl::Status Run() {
  const int size = absl::GetFlag(FLAGS_ranks);
  CHECK_GE(size, 2) << "--ranks";
  return SpawnRanks(size, RunRank);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tandem::Conclude("sync_batch_norm_benchmark", tandem::Run());
}
