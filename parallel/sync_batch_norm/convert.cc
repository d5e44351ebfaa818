#include "parallel/sync_batch_norm/convert.h"

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
#include "parallel/sync_batch_norm/sync_batch_norm.h"
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
