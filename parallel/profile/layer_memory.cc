#include "parallel/profile/layer_memory.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/last_pops.h"
#include "core/model/layer_list.h"
#include "core/precision/low_precision_copy.h"
#include "parallel/profile/storage_watch.h"

namespace tandem {
namespace {

int64_t BytesOf(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

c10::Device HomeOf(const LayerList& layers) {
  for (const auto& each : NamedParameters(layers)) return each.second.device();
  for (const auto& each : NamedBuffers(layers)) return each.second.device();
  return c10::kCPU;
}

void CountState(const LayerList& layers, const StatePerParameter& kept,
                ModelProfile& profile) {
  std::map<const c10::TensorImpl*, std::vector<size_t>> holders;
  std::map<const c10::TensorImpl*, int64_t> states;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerProfile& layer = profile.layers[i];
    for (const auto& [name, parameter] : NamedParameters({layers[i]})) {
      const int64_t state =
          StateBytesOf(BytesOf(parameter),
                       BytesOf(KeptLowPrecisionCopy(parameter)),
                       parameter.requires_grad(), kept)
              .total();
      layer.parameter_bytes += BytesOf(parameter);
      layer.state_bytes += state;
      holders[parameter.unsafeGetTensorImpl()].push_back(i);
      states[parameter.unsafeGetTensorImpl()] = state;
    }
    for (const auto& [name, buffer] : NamedBuffers({layers[i]})) {
      layer.state_bytes += BytesOf(buffer);
    }
  }
  int number = 0;
  for (const auto& [parameter, its] : holders) {
    if (its.size() < 2) continue;
    for (size_t i : its) {
      profile.layers[i].shared_state[number] = states[parameter];
    }
    ++number;
  }
}

absl::Status MeasureActivations(const LayerList& layers, const LayerFlow& entry,
                                ModelProfile& profile) {
  StorageWatch watch;
  for (const auto& each : NamedParameters(layers)) watch.Ignore(each.second);
  for (const auto& each : NamedBuffers(layers)) watch.Ignore(each.second);
  LayerFlow flow = LeavesOf(BroughtTo(entry, HomeOf(layers)));
  watch.Ignore(flow.values);
  for (const auto& each : flow.skips) watch.Ignore(each.second);
  at::Tensor values = std::exchange(flow.values, {});
  const std::vector<std::vector<std::string>> last = LastPops(LinksOf(layers));
  for (size_t i = 0; i < layers.size(); ++i) {
    watch.SetMaker(static_cast<int>(i));
    TANDEM_ASSIGN_OR_RETURN(
        values, CatchTorchOr(
                    [&] {
                      const at::Tensor input_of = std::move(values);
                      return RunLayer(layers[i], input_of, flow.skips);
                    },
                    absl::StrCat("profile of layer ", layers[i].name)));
    for (const std::string& skip : last[i]) flow.skips.erase(skip);
  }
  const auto graph = values.grad_fn();
  values.reset();
  // Parameters' copies are no microbatch's.
  for (const auto& each : NamedParameters(layers)) {
    watch.Ignore(KeptLowPrecisionCopy(each.second));
  }
  const std::vector<int64_t> kept =
      watch.AliveBytes(static_cast<int>(layers.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    profile.layers[i].activation_bytes = kept[i];
  }
  return absl::OkStatus();
}

}  // namespace tandem
