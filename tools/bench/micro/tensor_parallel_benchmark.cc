// How long forward and backward of GPT blocks take on processes of this host
// that share them by tensor parallelism, beside the whole blocks on each, and
// how much of that goes by in the collectives of activations.
//
//   bazel run -c opt //tools/bench:tensor_parallel_benchmark -- --ranks=2
//
// Then a product of a block's backward with the sum of another one's gradient:
// one after the other, as layers do it, and beside each other, the sum being
// started before the product and waited for behind it (Megatron-LM's
// asynchronous all-reduce). Medians of rounds in which the ways take turns, as
// rank 0 sees them. Every rank has one thread, and is bound to a core unless
// --nopin.

#include <ATen/ops/randn.h>
#include <glog/logging.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "core/program/exit_code.h"
#include "core/store/store.h"
#include "models/functions/matrix_product.h"
#include "models/transformer/gpt.h"
#include "parallel/tensor_parallel/axis_communicator.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(int, ranks, 2, "processes, whose number divides the heads");
ABSL_FLAG(bool, pin, true, "bind each rank to a core of its own");
ABSL_FLAG(int, layers, 2, "blocks");
ABSL_FLAG(int, width, 768, "of their activations");
ABSL_FLAG(int, heads, 12, "of their attention");
ABSL_FLAG(int, samples, 2, "of a microbatch");
ABSL_FLAG(int, tokens, 256, "of a sample");
ABSL_FLAG(int, rounds, 15, "how often each way takes its turn");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

// Another group's collectives, and how long they took.
class TimedGroup : public AxisGroup {
 public:
  explicit TimedGroup(std::shared_ptr<AxisGroup> group)
      : AxisGroup(group->axis(), group->index(), group->degree()),
        group_(std::move(group)) {}

  void AllReduceSum(const at::Tensor& x, const std::string& what) override {
    const Clock::time_point start = Clock::now();
    group_->AllReduceSum(x, what);
    milliseconds_ += MillisecondsSince(start);
  }
  void AllGather(const at::Tensor& all, const at::Tensor& mine,
                 const std::string& what) override {
    const Clock::time_point start = Clock::now();
    group_->AllGather(all, mine, what);
    milliseconds_ += MillisecondsSince(start);
  }
  void ReduceScatterSum(const at::Tensor& mine, const at::Tensor& all,
                        const std::string& what) override {
    const Clock::time_point start = Clock::now();
    group_->ReduceScatterSum(mine, all, what);
    milliseconds_ += MillisecondsSince(start);
  }

  double TakeMilliseconds() { return std::exchange(milliseconds_, 0); }

 private:
  const std::shared_ptr<AxisGroup> group_;
  double milliseconds_ = 0;
};

struct Way {
  std::string name;
  LayerList blocks;
  at::Tensor input;
  std::shared_ptr<TimedGroup> group;  // null: whole blocks
};

Way MakeWay(std::string name, Communicator* world, bool sequence_parallel) {
  Way way;
  way.name = std::move(name);
  auto parallel = std::make_shared<TensorParallel>();
  int64_t tokens = absl::GetFlag(FLAGS_tokens);
  if (world != nullptr) {
    way.group = std::make_shared<TimedGroup>(MakeAxisGroup("tensor", *world));
    parallel->group = way.group;
    parallel->sequence_parallel = sequence_parallel;
    if (sequence_parallel) tokens /= world->size();
  }
  const TensorParallelScope scope(world == nullptr ? nullptr : parallel);
  LayerSpecs specs;
  for (int i = 0; i < absl::GetFlag(FLAGS_layers); ++i) {
    specs.push_back(GptBlock("h." + std::to_string(i),
                             absl::GetFlag(FLAGS_width),
                             absl::GetFlag(FLAGS_heads), GptInitialValues(2)));
  }
  way.blocks = MakeLayers(specs, 1);
  way.input = at::randn(
      {absl::GetFlag(FLAGS_samples), tokens, absl::GetFlag(FLAGS_width)});
  way.input.requires_grad_();
  return way;
}

double TimeStep(const Way& way) {
  const Clock::time_point start = Clock::now();
  Forward(way.blocks, way.input).sum().backward();
  return MillisecondsSince(start);
}

absl::Status MeasureBlocks(Communicator& world) {
  std::vector<Way> ways;
  ways.push_back(MakeWay("whole blocks", nullptr, false));
  ways.push_back(MakeWay("tensor parallel", &world, false));
  ways.push_back(MakeWay("and by tokens", &world, true));
  std::vector<double> within(ways.size());
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MediansInTurns(absl::GetFlag(FLAGS_rounds), ways.size(),
                     [&](size_t i) -> absl::StatusOr<double> {
                       TANDEM_RETURN_IF_ERROR(world.Barrier());
                       if (ways[i].group != nullptr)
                         ways[i].group->TakeMilliseconds();
                       const absl::StatusOr<double> time =
                           CatchTorchOr([&] { return TimeStep(ways[i]); });
                       if (ways[i].group != nullptr) {
                         within[i] += ways[i].group->TakeMilliseconds();
                       }
                       return time;
                     }));
  if (world.rank() != 0) return absl::OkStatus();
  for (size_t i = 0; i < ways.size(); ++i) {
    std::printf("%-16s %8.2f ms, of which in collectives %8.2f ms\n",
                ways[i].name.c_str(), medians[i],
                within[i] / (absl::GetFlag(FLAGS_rounds) + 1));
  }
  return absl::OkStatus();
}

// dW = x^T dy of the first product of an MLP, and the sum of its dx.
absl::StatusOr<double> TimeOverlap(Communicator& world, const at::Tensor& x,
                                   const at::Tensor& dy, const at::Tensor& dx,
                                   bool beside) {
  TANDEM_RETURN_IF_ERROR(world.Barrier());
  const Clock::time_point start = Clock::now();
  if (beside) {
    TANDEM_ASSIGN_OR_RETURN(PendingCollective sum, world.StartAllReduceSum(dx));
    MatrixProduct(x.t(), dy);
    TANDEM_RETURN_IF_ERROR(sum.Wait());
  } else {
    MatrixProduct(x.t(), dy);
    TANDEM_RETURN_IF_ERROR(world.AllReduceSum(dx));
  }
  return MillisecondsSince(start);
}

absl::Status MeasureOverlap(Communicator& world) {
  const int64_t rows =
      absl::GetFlag(FLAGS_samples) * absl::GetFlag(FLAGS_tokens);
  const int64_t width = absl::GetFlag(FLAGS_width);
  const at::Tensor x = at::randn({rows, width});
  const at::Tensor dy = at::randn({rows, 4 * width / world.size()});
  const at::Tensor dx = at::randn({rows, width});
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MediansInTurns(absl::GetFlag(FLAGS_rounds), 2, [&](size_t i) {
        return TimeOverlap(world, x, dy, dx, /*beside=*/i == 1);
      }));
  if (world.rank() == 0) {
    std::printf("product, then sum %8.2f ms\nproduct beside sum %7.2f ms\n",
                medians[0], medians[1]);
  }
  return absl::OkStatus();
}

absl::Status RunRank(const StorePtr& store, int rank) {
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (absl::GetFlag(FLAGS_pin)) {
    TANDEM_RETURN_IF_ERROR(BindToCore(rank % cores));
  }
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(60);
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> world,
      Communicator::Create(store, rank, absl::GetFlag(FLAGS_ranks), "tensor",
                           options));
  TANDEM_RETURN_IF_ERROR(MeasureBlocks(*world));
  return MeasureOverlap(*world);
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
  return tandem::Conclude("tensor_parallel_benchmark", tandem::Run());
}
