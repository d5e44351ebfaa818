#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/context/compute_context.h"
#include "parallel/sync_batch_norm/synchronised_statistics.h"

namespace tandem {
namespace {

using torch::nn::Module;

struct PlainNorm {
  int dimensions = 0;
  torch::nn::BatchNormOptions options{1};
  NormTensors tensors;
};

template <typename Impl>
std::optional<PlainNorm> PlainIf(const Module& module, int dimensions) {
  const auto* const norm = module.as<Impl>();
  if (norm == nullptr) return std::nullopt;
  return PlainNorm{dimensions,
                   norm->options,
                   {norm->weight, norm->bias, norm->running_mean,
                    norm->running_var, norm->num_batches_tracked}};
}

// LibTorch's own, which know of no group.
std::optional<PlainNorm> PlainBatchNorm(const Module& module) {
  if (dynamic_cast<const SharesStatistics*>(&module) != nullptr) {
    return std::nullopt;
  }
  auto found = PlainIf<torch::nn::BatchNorm1dImpl>(module, 1);
  if (!found) found = PlainIf<torch::nn::BatchNorm2dImpl>(module, 2);
  if (!found) found = PlainIf<torch::nn::BatchNorm3dImpl>(module, 3);
  return found;
}

absl::Status HeldByType(const std::string& name, const PlainNorm& norm) {
  const std::string type = absl::StrCat("BatchNorm", norm.dimensions, "d");
  return absl::InvalidArgumentError(absl::StrCat(
      name.empty() ? "the module itself" : name, " is a torch::nn::", type,
      " that is held by its type, so that no SyncBatchNorm can take its place: "
      "declare it a tandem::Syncable",
      type, ", or put it into a torch::nn::Sequential"));
}

// A child of a Sequential.
struct Place {
  torch::nn::SequentialImpl* parent;
  size_t index;
  std::string name;
  std::shared_ptr<Module> child;
};

class Conversion {
 public:
  // Looks, and changes nothing.
  absl::Status Look(Module& module, const std::string& name) {
    if (const auto plain = PlainBatchNorm(module))
      return HeldByType(name, *plain);
    Note(&module);
    return LookBelow(module, name);
  }

  void Replace() {
    std::map<const Module*, std::shared_ptr<SyncBatchNormImpl>> made;
    for (const Place& place : places_) {
      auto& norm = made[place.child.get()];
      if (norm == nullptr) {
        const PlainNorm plain = *PlainBatchNorm(*place.child);
        norm =
            std::make_shared<SyncBatchNormImpl>(plain.options, plain.tensors);
        norm->train(place.child->is_training());
      }
      *(place.parent->begin() + static_cast<ptrdiff_t>(place.index)) =
          torch::nn::AnyModule(norm);
      place.parent->replace_module(place.name, norm);
    }
    // In the order in which they were found.
    for (Found& each : found_) {
      if (each.plain != nullptr) each.shares = made.at(each.plain).get();
    }
  }

  std::vector<SharesStatistics*> all() const {
    std::vector<SharesStatistics*> all;
    for (const Found& each : found_) all.push_back(each.shares);
    return all;
  }

 private:
  struct Found {
    SharesStatistics* shares;
    const Module* plain;  // to be replaced; else null
  };

  void Note(Module* module) {
    auto* const shares = dynamic_cast<SharesStatistics*>(module);
    if (shares != nullptr) Add({shares, nullptr});
  }

  void Add(Found found) {
    const bool known = absl::c_any_of(found_, [&](const Found& each) {
      return each.shares == found.shares && each.plain == found.plain;
    });
    if (!known) found_.push_back(found);
  }

  absl::Status LookBelow(Module& module, const std::string& name) {
    auto* const sequential = module.as<torch::nn::SequentialImpl>();
    size_t index = 0;
    for (const auto& item : module.named_children()) {
      const std::string child_path =
          name.empty() ? item.key() : absl::StrCat(name, ".", item.key());
      const bool replaceable =
          sequential != nullptr && PlainBatchNorm(*item.value()).has_value();
      if (replaceable) {
        places_.push_back({sequential, index, item.key(), item.value()});
        Add({nullptr, item.value().get()});
      } else {
        TANDEM_RETURN_IF_ERROR(Look(*item.value(), child_path));
      }
      ++index;
    }
    return absl::OkStatus();
  }

  std::vector<Place> places_;
  std::vector<Found> found_;
};

int Connect(const std::vector<SharesStatistics*>& modules,
            Communicator& group) {
  const std::shared_ptr<StatisticsGroup> statistics = StatisticsOver(group);
  for (SharesStatistics* each : modules) each->set_statistics_group(statistics);
  return static_cast<int>(modules.size());
}

}  // namespace

void CheckDimensions(const at::Tensor& x, int64_t dimensions) {
  const int64_t more = x.dim() - 2;
  const bool fits = dimensions == kAnyDimensions
                        ? more >= 0
                        : more == dimensions || (dimensions == 1 && more == 0);
  TORCH_CHECK(fits, "expected an input [n, channels, ...] with ",
              dimensions == kAnyDimensions ? std::string("any number of")
                                           : std::to_string(dimensions),
              " more dimensions, but got ", x.sizes());
}

at::Tensor NormaliseTogether(const at::Tensor& x, const NormTensors& tensors,
                             const torch::nn::BatchNormOptions& options,
                             const SharesStatistics& layer,
                             StatisticsGroup& group) {
  TORCH_CHECK(x.size(1) == options.num_features(), "SyncBatchNorm of ",
              options.num_features(), " channels got an input of ", x.sizes());
  const auto microbatch = MicrobatchScope::Current();
  if (microbatch.has_value()) {
    TORCH_CHECK_VALUE(
        !microbatch->defers_statistics && microbatch->records == nullptr,
        "SyncBatchNorm of a torch::nn module takes in its statistics at once: "
        "they can be deferred or recorded by microbatch with "
        "models/layers' BatchNorm2d alone");
  }
  const SharedStatistics statistics = group.Share(x, layer);
  const bool again = microbatch.has_value() && microbatch->is_recomputed;
  if (!again) TakeIn(statistics, options, tensors);
  return group.Normalise(x, tensors.weight, tensors.bias, options.eps(),
                         statistics);
}

at::Tensor NormaliseAlone(const at::Tensor& x, const NormTensors& tensors,
                          const torch::nn::BatchNormOptions& options,
                          bool training) {
  double momentum = options.momentum().value_or(0);
  if (training && options.track_running_stats()) {
    at::Tensor batches = tensors.num_batches_tracked;
    batches.add_(1);
    if (!options.momentum().has_value()) {
      momentum = 1.0 / static_cast<double>(batches.item<int64_t>());
    }
  }
  return at::batch_norm(x, tensors.weight, tensors.bias, tensors.running_mean,
                        tensors.running_var,
                        training || !options.track_running_stats(), momentum,
                        options.eps(), at::globalContext().userEnabledCuDNN());
}

void TakeIn(const SharedStatistics& statistics,
            const torch::nn::BatchNormOptions& options, NormTensors tensors) {
  if (!options.track_running_stats()) return;
  UpdateRunningStatistics(statistics, options.momentum(), tensors.running_mean,
                          tensors.running_var, tensors.num_batches_tracked);
}

at::Tensor NoSamplesFor(const NormTensors& tensors,
                        const torch::nn::BatchNormOptions& options) {
  const at::Tensor& any =
      tensors.weight.defined() ? tensors.weight : tensors.running_mean;
  return at::empty({0, options.num_features()},
                   any.defined() ? any.options() : at::TensorOptions());
}

SyncBatchNormImpl::SyncBatchNormImpl(
    const torch::nn::BatchNormOptions& its_options, Communicator& group)
    : options(its_options), group_(StatisticsOver(group)) {
  reset();
}

SyncBatchNormImpl::SyncBatchNormImpl(
    const torch::nn::BatchNormOptions& its_options, NormTensors tensors)
    : options(its_options) {
  Register(std::move(tensors));
}

void SyncBatchNormImpl::reset() {
  NormTensors initial;
  const int64_t channels = options.num_features();
  if (options.affine()) {
    initial.weight = at::ones({channels}).set_requires_grad(true);
    initial.bias = at::zeros({channels}).set_requires_grad(true);
  }
  if (options.track_running_stats()) {
    initial.running_mean = at::zeros({channels});
    initial.running_var = at::ones({channels});
    initial.num_batches_tracked = at::tensor(0, at::kLong);
  }
  Register(std::move(initial));
}

void SyncBatchNormImpl::Register(NormTensors tensors) {
  const auto trains = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  };
  weight = register_parameter("weight", tensors.weight, trains(tensors.weight));
  bias = register_parameter("bias", tensors.bias, trains(tensors.bias));
  running_mean = register_buffer("running_mean", tensors.running_mean);
  running_var = register_buffer("running_var", tensors.running_var);
  num_batches_tracked =
      register_buffer("num_batches_tracked", tensors.num_batches_tracked);
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& x) {
  CheckDimensions(x, kAnyDimensions);
  if (group_ != nullptr && is_training()) {
    return NormaliseTogether(x, tensors(), options, *this, *group_);
  }
  return NormaliseAlone(x, tensors(), options, is_training());
}

void SyncBatchNormImpl::TakeIn(const SharedStatistics& statistics) {
  tandem::TakeIn(statistics, options, tensors());
}

at::Tensor SyncBatchNormImpl::NoSamples() const {
  return NoSamplesFor(tensors(), options);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "tandem::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ")";
}

absl::StatusOr<int> ConvertSyncBatchNorm(Module& module, Communicator& group) {
  Conversion conversion;
  TANDEM_RETURN_IF_ERROR(conversion.Look(module, ""));
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { conversion.Replace(); }));
  return Connect(conversion.all(), group);
}

absl::StatusOr<std::vector<SharesStatistics*>> MakeSyncable(
    const LayerList& layers) {
  Conversion conversion;
  for (const Layer& layer : layers) {
    if (layer.module == nullptr) continue;
    TANDEM_RETURN_IF_ERROR(conversion.Look(*layer.module, layer.name));
  }
  TANDEM_RETURN_IF_ERROR(CatchTorch([&] { conversion.Replace(); }));
  return conversion.all();
}

absl::StatusOr<int> ConvertSyncBatchNorm(const LayerList& layers,
                                         Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(const auto modules, MakeSyncable(layers));
  return Connect(modules, group);
}

}  // namespace tandem
