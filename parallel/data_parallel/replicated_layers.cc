#include "parallel/data_parallel/replicated_layers.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/context/compute_context.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/model/shared_statistics.h"
#include "core/model/statistics_records.h"
#include "parallel/data_parallel/data_parallel.h"
#include "parallel/data_parallel/replicated_state.h"

namespace tandem {
namespace {

using Parallel = DataParallel<LayerList>;

// What it throws names it.
template <typename Run>
at::Tensor Named(const std::string& name, const Run& run) {
  try {
    return run();
  } catch (c10::Error& error) {  // keeps its type, of which a Status is made
    error.add_context(absl::StrCat("in layer ", name));
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        absl::StrCat(error.what(), " (in layer ", name, ")"));
  }
}

LayerList NamedLayers(LayerList layers) {
  for (Layer& layer : layers) {
    if (layer.forward) {
      layer.forward = [name = layer.name,
                       forward = layer.forward](const at::Tensor& input) {
        return Named(name, [&] { return forward(input); });
      };
    }
    if (layer.forward_with_skips) {
      layer.forward_with_skips = [name = layer.name,
                                  forward = layer.forward_with_skips](
                                     const at::Tensor& input, Skips& skips) {
        return Named(name, [&] { return forward(input, skips); });
      };
    }
  }
  return layers;
}

// An error as a layer tells of it.
[[noreturn]] void Throw(const absl::Status& status) {
  const std::string message(status.message());
  TORCH_CHECK_WITH(OutOfMemoryError,
                   status.code() != absl::StatusCode::kResourceExhausted,
                   message);
  TORCH_CHECK_NOT_IMPLEMENTED(status.code() != absl::StatusCode::kUnimplemented,
                              message);
  TORCH_CHECK(false, message);
}

using Normalisations = std::vector<std::shared_ptr<const SharesStatistics>>;

// Layers that could share statistics.
Normalisations FindNormalisations(const LayerList& layers) {
  Normalisations found;
  for (const auto& module : ReplicaTraits<LayerList>::Modules(layers)) {
    auto shares = std::dynamic_pointer_cast<const SharesStatistics>(module);
    if (shares != nullptr) found.push_back(std::move(shares));
  }
  return found;
}

// Other replicas' would not take part.
void CheckShareNothing(const Normalisations& layers) {
  for (const auto& layer : layers) {
    TORCH_CHECK_VALUE(
        !layer->has_statistics_group(),
        "SyncBatchNorm does not reach the replicas of DataParallel: give each "
        "device a rank of its own (DDP)");
  }
}

// What the last layer does.
at::Tensor Run(Parallel& parallel, const LayerLinks& links,
               const at::Tensor& input, Skips& skips) {
  const auto microbatch = MicrobatchScope::Current();
  TORCH_CHECK(!microbatch.has_value() || microbatch->records == nullptr ||
                  microbatch->records->size() == 0,
              "a microbatch that is divided over devices records no statistics "
              "for the same bits in every layout");
  Skips further;
  for (const std::string& name : links.reads) further[name] = skips.at(name);
  auto outputs = parallel.Forward(input, further, links.stash);
  if (!outputs.ok()) Throw(outputs.status());
  for (auto& [name, skip] : outputs->second) skips[name] = std::move(skip);
  return std::move(outputs->first);
}

// Holds the layer's parameters, and hands its input on.
Layer Passing(const Layer& layer) {
  Layer passing{layer.name, layer.module,
                [](const at::Tensor& input) { return input; }};
  passing.traits = layer.traits;
  return passing;
}

}  // namespace

absl::StatusOr<LayerList> ReplicateOverDevices(
    const LayerList& layers, const std::function<LayerList()>& make,
    const std::vector<c10::Device>& devices,
    const std::vector<std::string>& loss_takes, bool counts_all_writes) {
  if (layers.empty()) {
    return absl::InvalidArgumentError("there are no layers to replicate");
  }
  const std::vector<LayerLinks> links = LinksByLayer(layers);
  TANDEM_RETURN_IF_ERROR(CheckSkips(links, loss_takes));
  DataParallelOptions options;
  options.device_ids = devices;
  options.counts_all_writes = counts_all_writes;
  TANDEM_ASSIGN_OR_RETURN(options.device_ids, DataParallelDevices(options));
  TANDEM_RETURN_IF_ERROR(MoveLayers(layers, options.device_ids[0]));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Parallel> made,
      Parallel::Create(NamedLayers(layers), options, [&make](c10::Device) {
        return absl::StatusOr<LayerList>(NamedLayers(make()));
      }));
  const std::shared_ptr<Parallel> parallel = std::move(made);
  LayerList replicated;
  for (const Layer& layer : layers) replicated.push_back(Passing(layer));
  Layer& last = replicated.back();
  last.links.reads = FurtherInputs(links);
  last.links.stash = loss_takes;
  last.forward_with_skips = [parallel, last_links = last.links,
                             shared = FindNormalisations(layers)](
                                const at::Tensor& input, Skips& skips) {
    CheckShareNothing(shared);
    return Run(*parallel, last_links, input, skips);
  };
  last.forward = [run = last.forward_with_skips](const at::Tensor& input) {
    Skips none;
    return run(input, none);
  };
  return replicated;
}

}  // namespace tandem
