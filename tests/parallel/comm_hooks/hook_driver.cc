#include "tests/parallel/comm_hooks/hook_driver.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <glog/logging.h>

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"

namespace tandem {
namespace {

int64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1},
                         std::multiplies<int64_t>());
}

// 64 bytes of float.
int64_t AlignUp(int64_t n) { return (n + 15) / 16 * 16; }

GradBucket MakeBucket(const DriverParameters& parameters,
                      at::ScalarType dtype) {
  const auto options = at::device(TestDevice()).dtype(dtype);
  GradBucket bucket;
  int64_t size = 0;
  for (const auto& each : parameters) size += AlignUp(Product(each.sizes));
  bucket.buffer = at::zeros({size}, options);
  int64_t offset = 0;
  for (const auto& each : parameters) {
    at::Tensor parameter = at::empty(each.sizes, options);
    if (!each.strides.empty()) {
      parameter = parameter.as_strided(each.sizes, each.strides);
    }
    bucket.gradients.push_back(
        bucket.buffer.as_strided(each.sizes, parameter.strides(), offset));
    bucket.parameters.push_back(parameter);
    bucket.names.push_back(each.name);
    offset += AlignUp(parameter.numel());
  }
  return bucket;
}

// Sum of the magnitudes of what lies between the parameters.
double Padding(const GradBucket& bucket) {
  const at::Tensor rest = bucket.buffer.clone();
  for (const at::Tensor& gradient : bucket.gradients) {
    rest.narrow(0, gradient.storage_offset(), gradient.numel()).zero_();
  }
  return rest.abs().sum().item<double>();
}

}  // namespace

HookDriver::HookDriver(const std::vector<DriverParameters>& buckets,
                       at::ScalarType dtype) {
  for (const auto& parameters : buckets) {
    GradBucket bucket = MakeBucket(parameters, dtype);
    bucket.index = static_cast<int64_t>(buckets_.size());
    bucket.is_last = buckets_.size() + 1 == buckets.size();
    buckets_.push_back(std::move(bucket));
  }
}

at::Tensor HookDriver::gradient(const std::string& name) const {
  for (const GradBucket& bucket : buckets_) {
    for (size_t i = 0; i < bucket.names.size(); ++i) {
      if (bucket.names[i] == name) return bucket.gradients[i];
    }
  }
  LOG(FATAL) << "no parameter " << name;
}

void HookDriver::Fill(
    const std::function<at::Tensor(const std::string& name,
                                   at::IntArrayRef sizes)>& value) {
  at::NoGradGuard no_grad;
  for (const GradBucket& bucket : buckets_) {
    for (size_t i = 0; i < bucket.names.size(); ++i) {
      const at::Tensor& gradient = bucket.gradients[i];
      gradient.copy_(value(bucket.names[i], gradient.sizes()));
    }
  }
}

absl::Status HookDriver::Reduce(const CommunicationHook& hook,
                                Communicator& group) {
  std::vector<FinishReduction> finish;
  for (const GradBucket& bucket : buckets_) {
    TANDEM_ASSIGN_OR_RETURN(FinishReduction one, hook(bucket, group));
    finish.push_back(std::move(one));
  }
  for (const FinishReduction& one : finish) TANDEM_RETURN_IF_ERROR(one());
  return absl::OkStatus();
}

absl::Status HookDriver::CheckAlike(Communicator& group) const {
  for (const GradBucket& bucket : buckets_) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<at::Tensor> all,
                            group.AllGather(bucket.buffer));
    const at::Tensor first = all[0].view(at::kByte);
    for (int rank = 0; rank < group.size(); ++rank) {
      if (all[rank].view(at::kByte).equal(first)) continue;
      return absl::InternalError(absl::StrCat(
          "bucket ", bucket.index, " of rank ", rank, " is not rank 0's"));
    }
    if (Padding(bucket) != 0) {
      return absl::InternalError(
          absl::StrCat("bucket ", bucket.index, " has padding that is not 0"));
    }
  }
  return absl::OkStatus();
}

at::Tensor Normal(int step, int rank, const std::string& name,
                  at::IntArrayRef sizes) {
  at::Generator generator =
      GeneratorFor(7, absl::StrCat(step, "/", rank, "/", name));
  return at::randn(sizes, generator);
}

void FillNormal(int step, int rank, HookDriver* driver) {
  driver->Fill([&](const std::string& name, at::IntArrayRef sizes) {
    return Normal(step, rank, name, sizes);
  });
}

at::Tensor MeanNormal(int step, int ranks, const std::string& name,
                      at::IntArrayRef sizes) {
  at::Tensor sum = at::zeros(sizes, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    sum.add_(Normal(step, rank, name, sizes));
  }
  return sum.div_(ranks);
}

const std::vector<DriverParameters>& PowerSgdBuckets() {
  static const auto* const buckets = new std::vector<DriverParameters>{
      {{"weight", {24, 17}}, {"bias", {24}}, {"small", {3, 4}}},
      {{"scalar", {}}, {"conv", {16, 5, 3, 3}, {45, 1, 15, 5}}},
      {{"plain", {13}}, {"row", {1, 50}}},
      {{"turned", {19, 23}, {1, 19}}, {"empty", {0, 4}}}};
  return *buckets;
}

const std::vector<std::string>& CompressedNames() {
  static const auto* const names =
      new std::vector<std::string>{"weight", "conv", "turned"};
  return *names;
}

PowerSgdOptions AtOnce(int64_t rank) {
  PowerSgdOptions options;
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 0;
  options.min_compression_rate = 1;
  return options;
}

at::Tensor LowRank(int step, int who, int64_t rank, const std::string& name,
                   at::IntArrayRef sizes) {
  const int64_t rows = sizes.empty() ? 1 : sizes[0];
  int64_t columns = 1;
  for (size_t d = 1; d < sizes.size(); ++d) columns *= sizes[d];
  return at::matmul(Normal(step, -1, name, {rows, rank}).to(at::kDouble),
                    Normal(step, who, name, {rank, columns}).to(at::kDouble))
      .view(sizes);
}

at::Tensor MeanLowRank(int step, int ranks, int64_t rank,
                       const std::string& name, at::IntArrayRef sizes) {
  at::Tensor sum = at::zeros(sizes, at::kDouble);
  for (int who = 0; who < ranks; ++who) {
    sum.add_(LowRank(step, who, rank, name, sizes));
  }
  return sum / ranks;
}

absl::Status Close(const HookDriver& driver, const std::string& name,
                   const at::Tensor& expected, double tolerance) {
  const at::Tensor gradient = driver.gradient(name).to(at::kCPU, at::kDouble);
  if (at::allclose(gradient, expected.to(at::kCPU, at::kDouble), tolerance,
                   tolerance)) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat(name, " is off by ",
                   (gradient - expected.cpu()).abs().max().item<double>()));
}

absl::Status RunPowerSgd(int n, const PowerSgdOptions& options,
                         const OnRank& fn, at::ScalarType dtype) {
  return RunDeviceRanks(n, [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(PowerSgd power_sgd, PowerSgd::Create(options));
    HookDriver driver(PowerSgdBuckets(), dtype);
    return fn(world, power_sgd, driver);
  });
}

absl::Status ReduceNormal(int step, Communicator& world, PowerSgd& power_sgd,
                          HookDriver& driver) {
  FillNormal(step, world.rank(), &driver);
  TANDEM_RETURN_IF_ERROR(driver.Reduce(power_sgd.Hook(), world));
  return driver.CheckAlike(world);
}

at::Tensor StateTensor(const NamedTensors& state, const std::string& name) {
  for (const auto& each : state) {
    if (each.first == name) return each.second;
  }
  return {};
}

}  // namespace tandem
