#include "tools/bench/data_parallel/methods.h"

#include <ATen/Parallel.h>
#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/parallel/data_parallel.h>

#include <chrono>
#include <cmath>
#include <future>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/device/device.h"
#include "core/model/module_traits.h"
#include "core/random/random.h"
#include "core/store/store.h"
#include "parallel/data_parallel.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kClasses = 10;

torch::nn::Sequential Wide() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  return torch::nn::Sequential(Linear(1024, 1024), ReLU(), Linear(1024, 1024),
                               ReLU(), Linear(1024, kClasses));
}

torch::nn::Sequential Conv() {
  torch::nn::Sequential layers;
  int64_t channels = 3;
  for (const int64_t next : {32, 64, 64, 128}) {
    layers->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, next, 3).padding(1)));
    layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::MaxPool2d(2));
    channels = next;
  }
  layers->push_back(torch::nn::Flatten());
  layers->push_back(torch::nn::Linear(channels * 4, kClasses));
  return layers;
}

using Net = std::shared_ptr<BenchNet>;
using Devices = std::vector<c10::Device>;

constexpr double kRate = 0.02;
constexpr std::chrono::seconds kTimeout(120);

// What runs in one process, by one call of forward.
class LocalWay : public TrainingMethod {
 public:
  absl::Status Prepare(const std::string& kind, const Devices& devices) {
    devices_ = devices;
    net_ = NewBenchNet(kind);
    net_->to(devices[0]);
    flat_ = MakeFlatBuffers(ModuleTraits<Net>::Parameters(net_));
    TANDEM_ASSIGN_OR_RETURN(optimizer_, MakeOptimizer(SgdOptions{0.9}, flat_));
    return Begin();
  }

  absl::StatusOr<double> Step(const BenchBatch& batch) override {
    for (const auto& each : flat_) each->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs, Forward(batch.inputs));
    return CatchTorchOr([&] {
      const at::Tensor loss =
          at::cross_entropy_loss(outputs, batch.targets.to(devices_[0]));
      loss.backward();
      optimizer_->Step(kRate);
      return loss.item<double>();
    });
  }

 protected:
  virtual absl::Status Begin() { return absl::OkStatus(); }
  virtual absl::StatusOr<at::Tensor> Forward(const at::Tensor& inputs) = 0;

  Net net_;
  Devices devices_;

 private:
  FlatBuffers flat_;
  std::unique_ptr<Optimizer> optimizer_;
};

class OneDevice : public LocalWay {
  absl::StatusOr<at::Tensor> Forward(const at::Tensor& inputs) override {
    return CatchTorchOr([&] { return net_->forward(inputs.to(devices_[0])); });
  }
};

class KeptReplicas : public LocalWay {
  absl::Status Begin() override {
    DataParallelOptions options;
    options.device_ids = devices_;
    TANDEM_ASSIGN_OR_RETURN(parallel_, MakeDataParallel(net_, options));
    return absl::OkStatus();
  }
  absl::StatusOr<at::Tensor> Forward(const at::Tensor& inputs) override {
    return parallel_->Forward(inputs);
  }
  std::unique_ptr<DataParallel<Net>> parallel_;
};

// parallel_apply runs replicas on LibTorch's threads for operators: for its
// time there are as many as devices.
class LibTorchs : public LocalWay {
  absl::StatusOr<at::Tensor> Forward(const at::Tensor& inputs) override {
    return CatchTorchOr([&] {
      const auto count = static_cast<int64_t>(devices_.size());
      std::vector<at::Tensor> parts = inputs.chunk(count);
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i] = parts[i].to(devices_[i]);
      }
      auto replicas = torch::nn::parallel::replicate(net_, devices_);
      at::set_num_threads(static_cast<int>(count));
      std::vector<at::Tensor> outputs =
          torch::nn::parallel::parallel_apply(replicas, parts, devices_);
      at::set_num_threads(1);
      for (at::Tensor& each : outputs) each = each.to(devices_[0]);
      return at::cat(outputs);
    });
  }
};

struct DdpRank {
  explicit DdpRank(c10::Device device) : thread(device) {}
  std::unique_ptr<Communicator> world;
  std::unique_ptr<DistributedDataParallel<Net>> ddp;
  std::unique_ptr<Optimizer> optimizer;
  DeviceThread thread;  // last: it uses the others
};

class DdpRanks : public TrainingMethod {
 public:
  absl::Status Prepare(const std::string& kind, const Devices& devices) {
    for (const c10::Device& each : devices) {
      ranks_.push_back(std::make_unique<DdpRank>(each));
    }
    const StorePtr store = NewHashStore(kTimeout);
    CommunicatorOptions options;
    options.timeout = kTimeout;
    return OnRanks([&](int number, DdpRank& rank) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(
          rank.world,
          Communicator::Create(store, number, size(), "bench", options));
      const Net net = NewBenchNet(kind);
      net->to(rank.thread.device());
      TANDEM_ASSIGN_OR_RETURN(rank.ddp,
                              MakeDistributedDataParallel(net, *rank.world));
      TANDEM_ASSIGN_OR_RETURN(
          rank.optimizer,
          MakeOptimizer(SgdOptions{0.9}, rank.ddp->flat_buffers()));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<double> Step(const BenchBatch& batch) override {
    const auto inputs = batch.inputs.chunk(size());
    const auto targets = batch.targets.chunk(size());
    std::vector<double> losses(ranks_.size());
    TANDEM_RETURN_IF_ERROR(OnRanks([&](int number, DdpRank& rank) {
      const auto i = static_cast<size_t>(number);
      return RankStep(rank, inputs[i], targets[i], &losses[i]);
    }));
    double sum = 0;
    for (const double each : losses) sum += each;
    return sum / size();
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  static absl::Status RankStep(DdpRank& rank, const at::Tensor& inputs,
                               const at::Tensor& targets, double* loss) {
    const c10::Device device = rank.thread.device();
    rank.ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                            rank.ddp->Forward(inputs.to(device)));
    const at::Tensor mean = at::cross_entropy_loss(outputs, targets.to(device));
    TANDEM_RETURN_IF_ERROR(rank.ddp->Backward(mean));
    rank.optimizer->Step(kRate);
    *loss = mean.item<double>();
    return absl::OkStatus();
  }

  absl::Status OnRanks(
      const std::function<absl::Status(int number, DdpRank& rank)>& work) {
    std::vector<std::future<absl::Status>> running;
    for (int i = 0; i < size(); ++i) {
      DdpRank& rank = *ranks_[static_cast<size_t>(i)];
      running.push_back(
          rank.thread.Submit([&work, &rank, i] { return work(i, rank); }));
    }
    absl::Status done;
    for (auto& each : running) done.Update(each.get());
    return done;
  }

  std::vector<std::unique_ptr<DdpRank>> ranks_;
};

template <typename Way>
absl::Status Add(const std::string& name, const BenchProblem& problem,
                 const Devices& devices, std::vector<NamedMethod>& ways) {
  auto way = std::make_unique<Way>();
  TANDEM_RETURN_IF_ERROR(Annotate(
      CatchTorch([&] { return way->Prepare(problem.name, devices); }), name));
  ways.push_back({name, std::move(way)});
  return absl::OkStatus();
}

}  // namespace

BenchNet::BenchNet(std::string net_kind) : kind(std::move(net_kind)) {
  reset();
}

void BenchNet::reset() {
  layers = register_module("layers", kind == "wide" ? Wide() : Conv());
}

at::Tensor BenchNet::forward(const at::Tensor& x) { return layers->forward(x); }

std::vector<BenchProblem> BenchProblems() {
  return {{"wide", "3 linear layers of 1024, 2.1 M parameters", {1024}, 256},
          {"conv", "4 convolutions, 0.14 M parameters", {3, 32, 32}, 64}};
}

std::shared_ptr<BenchNet> NewBenchNet(const std::string& kind) {
  auto net = std::make_shared<BenchNet>(kind);
  const at::NoGradGuard no_grad;
  for (const auto& each : net->named_parameters()) {
    const double scale =
        each->dim() > 1 ? 1.4 / std::sqrt(each->numel() / each->size(0)) : 0;
    each->normal_(0, 1, GeneratorFor(kSeed, each.key())).mul_(scale);
  }
  return net;
}

BenchBatch StepBatch(const BenchProblem& problem, int step) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step));
  std::vector<int64_t> sizes = {problem.batch_size};
  sizes.insert(sizes.end(), problem.sample.begin(), problem.sample.end());
  return {
      at::randn(sizes, generator),
      at::randint(problem.classes, {problem.batch_size}, generator, at::kLong)};
}

absl::StatusOr<std::vector<NamedMethod>> MakeTrainingMethods(
    const BenchProblem& problem, const Devices& devices) {
  std::vector<NamedMethod> ways;
  TANDEM_RETURN_IF_ERROR(
      Add<OneDevice>("one device", problem, {devices[0]}, ways));
  TANDEM_RETURN_IF_ERROR(
      Add<KeptReplicas>("DataParallel", problem, devices, ways));
  TANDEM_RETURN_IF_ERROR(
      Add<LibTorchs>("LibTorch's data_parallel", problem, devices, ways));
  TANDEM_RETURN_IF_ERROR(
      Add<DdpRanks>("DistributedDataParallel", problem, devices, ways));
  return ways;
}

}  // namespace tandem
