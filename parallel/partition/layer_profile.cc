#include "parallel/partition/layer_profile.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/batch.h"
#include "core/model/batch_inputs.h"
#include "core/model/layer_flow.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/model/weight_gradient_sink.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "parallel/partition/layer_memory.h"
#include "parallel/split_backward/graph_split.h"

namespace tandem {
namespace {

// How long a device takes for what it is given.
class DeviceStopwatch {
 public:
  explicit DeviceStopwatch(c10::Device device) : device_(device) { Lap(); }

  // Seconds since the last lap, when the device has done all of it.
  double Lap() {
    Await(device_);
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> lap = now - last_;
    last_ = now;
    return lap.count();
  }

  // Waits for what the device was given.
  static void Await(c10::Device device) {
    if (device.is_cpu()) return;
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(std::max<c10::DeviceIndex>(device.index(), 0));
  }

 private:
  c10::Device device_;
  std::chrono::steady_clock::time_point last_;
};

// The middle value, or the greater of the two in the middle. Requires a value.
double UpperMedian(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Times of one layer, in the rounds that count.
struct Times {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
};

// Has a layer on a device for a while, and none of its gradients afterwards:
// all layers' would take as much memory as the model.
class Visit {
 public:
  Visit(const Layer& layer, c10::Device device)
      : layer_(layer), home_(ParametersDevice({layer})) {
    if (layer_.module != nullptr) layer_.module->to(device);
  }
  ~Visit() {
    for (const auto& each : NamedParameters({layer_})) {
      at::Tensor parameter = each.second;
      parameter.mutable_grad().reset();
    }
    if (layer_.module != nullptr) layer_.module->to(home_);
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  const Layer& layer_;
  const c10::Device home_;
};

// Gradients and buffers as they were.
class StateBackup {
 public:
  explicit StateBackup(const LayerList& layers) {
    for (const auto& each : NamedParameters(layers)) {
      gradients_.emplace_back(each.second, each.second.grad());
      gradients_.back().first.mutable_grad().reset();
    }
    for (const auto& each : NamedBuffers(layers)) {
      buffers_.emplace_back(each.second, each.second.detach().clone());
    }
  }
  ~StateBackup() {
    const at::NoGradGuard no_grad;
    // A tied parameter stands here twice: what it had first counts.
    for (auto each = gradients_.rbegin(); each != gradients_.rend(); ++each) {
      each->first.mutable_grad() = each->second;
    }
    for (auto& [buffer, values] : buffers_) buffer.copy_(values);
  }
  StateBackup(const StateBackup&) = delete;
  StateBackup& operator=(const StateBackup&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

// Zeros stand for the sums of the microbatches before.
void GiveGradients(const Layer& layer) {
  for (const auto& each : NamedParameters({layer})) {
    at::Tensor parameter = each.second;
    if (!parameter.requires_grad()) continue;
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
}

// What backward of a layer begins from: its output, and the skips that it left.
at::TensorList GradientRoots(const Layer& layer, const LayerFlow& made,
                             std::vector<at::Tensor>& roots) {
  if (made.values.requires_grad()) roots.push_back(made.values);
  for (const std::string& name : layer.links.stash) {
    const at::Tensor& skip = made.skips.at(name);
    if (skip.requires_grad()) roots.push_back(skip);
  }
  return roots;
}

std::vector<at::Tensor> FlowTensors(const LayerFlow& flow) {
  std::vector<at::Tensor> tensors = {flow.values};
  for (const auto& each : flow.skips) tensors.push_back(each.second);
  return tensors;
}

// The first part; gives what is left of it for the second.
GraphSplit BackwardInputs(const std::vector<at::Tensor>& roots,
                          const std::vector<at::Tensor>& gradients,
                          const LayerFlow& leaves, bool splits) {
  if (roots.empty()) return GraphSplit();
  if (!splits) {
    torch::autograd::backward(roots, gradients);
    return GraphSplit();
  }
  torch::autograd::edge_list edges;
  for (const at::Tensor& root : roots) {
    edges.push_back(torch::autograd::impl::gradient_edge(root));
  }
  return GraphSplit::BackwardInputs(edges, gradients, FlowTensors(leaves));
}

// Forward and backward of one layer on `leaves`; gives those of the next one.
absl::StatusOr<LayerFlow> RunOnce(const Layer& layer,
                                  const ProfileOptions& options,
                                  const LayerFlow& leaves, Times& times) {
  const auto sink = std::make_shared<WeightGradientSink>();
  LayerFlow made = leaves;
  if (options.adds_gradients) GiveGradients(layer);
  DeviceStopwatch clock(options.device);
  {
    const WeightGradientSink::Scope scope(sink);
    made.values = RunLayer(layer, made.values, made.skips);
  }
  times.forward.push_back(clock.Lap());
  std::vector<at::Tensor> roots;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& root : GradientRoots(layer, made, roots)) {
    gradients.push_back(at::ones_like(root));
  }
  clock.Lap();
  GraphSplit left =
      BackwardInputs(roots, gradients, leaves, options.splits_backward);
  times.backward_input.push_back(clock.Lap());
  left.BackwardWeights();
  TANDEM_RETURN_IF_ERROR(sink->Flush());
  times.backward_weight.push_back(clock.Lap());
  return DetachedLeaves(made);
}

// The loss as a layer behind the others.
LayerList WithLoss(const LayerList& layers, const ProfileOptions& options) {
  LayerList all = layers;
  if (options.loss == nullptr) return all;
  Layer loss;
  loss.name = "loss";
  loss.links.pop = options.loss_takes;
  loss.forward = [&options](const at::Tensor& output) {
    return options.loss(output, {});
  };
  loss.forward_with_skips = options.loss;
  all.push_back(std::move(loss));
  return all;
}

absl::Status RunRound(const LayerList& layers, const LayerFlow& entry,
                      const ProfileOptions& options, std::vector<Times>& times,
                      ModelProfile& profile) {
  const c10::Device device = options.device;
  const c10::OptionalDeviceGuard guard(device);
  const std::vector<LayerLinks> links = LinksByLayer(layers);
  TANDEM_ASSIGN_OR_RETURN(LayerFlow flow, CatchTorchOr([&] {
                            return DetachedLeaves(BroughtTo(entry, device));
                          }));
  for (size_t i = 0; i < layers.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(
        flow, CatchTorchOr(
                  [&] {
                    const Visit visit(layers[i], device);
                    return RunOnce(layers[i], options, flow, times[i]);
                  },
                  absl::StrCat("profile of layer ", layers[i].name)));
    KeepSkips(SkipsBefore(links, i + 1, options.loss_takes), flow);
    if (i < profile.layers.size()) {
      profile.layers[i].output_bytes = flow.bytes();
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureTimes(const LayerList& layers, const LayerFlow& entry,
                          const ProfileOptions& options,
                          ModelProfile& profile) {
  const LayerList all = WithLoss(layers, options);
  std::vector<Times> times(all.size());
  for (int run = 0; run < options.warmup + options.runs; ++run) {
    if (run == options.warmup) times.assign(all.size(), {});
    TANDEM_RETURN_IF_ERROR(RunRound(all, entry, options, times, profile));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    LayerProfile& layer =
        profile.layers[std::min(i, profile.layers.size() - 1)];
    layer.forward += UpperMedian(times[i].forward);
    layer.backward_input += UpperMedian(times[i].backward_input);
    layer.backward_weight += UpperMedian(times[i].backward_weight);
  }
  return absl::OkStatus();
}

// What the device does, as far as a processor can: activations of the same
// size.
AutocastState AtHome(c10::DeviceType home, c10::DeviceType device) {
  AutocastState state = CurrentAutocast(device);
  if (home == device) return state;
  state.type = home;
  if (state.dtype == c10::kHalf) state.dtype = c10::kBFloat16;
  return state;
}

// Layers that are measured are not trained with afterwards, or not soon.
void DropCopies(const LayerList& layers) {
  for (const auto& each : NamedParameters(layers)) {
    DropLowPrecisionCopy(each.second);
  }
}

absl::StatusOr<LayerFlow> MakeEntry(const at::Tensor& input,
                                    const ProfileOptions& options,
                                    const std::vector<LayerLinks>& links) {
  Batch batch;
  batch.size = input.dim() > 0 ? input.size(0) : 0;
  batch.further_inputs = options.further_inputs;
  LayerFlow entry = {input};
  TANDEM_ASSIGN_OR_RETURN(entry.skips,
                          NamedInputs(batch, FurtherInputs(links)));
  return entry;
}

constexpr int64_t kSmall = 4 << 10;
constexpr int64_t kBig = 4 << 20;
constexpr int kRuns = 7;

double SecondsOfCopy(const at::Tensor& source, at::Tensor& destination) {
  std::vector<double> runs;
  DeviceStopwatch clock(destination.device());
  for (int run = 0; run < kRuns; ++run) {
    clock.Lap();
    destination.copy_(source, /*non_blocking=*/true);
    DeviceStopwatch::Await(source.device());
    runs.push_back(clock.Lap());
  }
  return UpperMedian(std::move(runs));
}

double SecondsFor(int64_t bytes, c10::Device from, c10::Device to) {
  const at::Tensor source =
      at::zeros({bytes}, at::TensorOptions(from).dtype(at::kByte));
  at::Tensor destination = at::empty_like(source, source.options().device(to));
  DeviceStopwatch::Await(from);
  return SecondsOfCopy(source, destination);
}

}  // namespace

absl::StatusOr<ModelProfile> ProfileLayers(const LayerList& layers,
                                           const at::Tensor& input,
                                           const ProfileOptions& options) {
  if (layers.empty() || options.runs < 1 || options.warmup < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a profile needs 1 layer and 1 run at least, but ",
                     layers.size(), " layers, ", options.runs, " runs and ",
                     options.warmup, " to warm up were given"));
  }
  const std::vector<LayerLinks> links = LinksByLayer(layers);
  TANDEM_RETURN_IF_ERROR(CheckSkips(links, options.loss_takes));
  TANDEM_ASSIGN_OR_RETURN(const LayerFlow entry,
                          MakeEntry(input, options, links));
  ModelProfile profile;
  profile.input_bytes = entry.bytes();
  for (const Layer& layer : layers) {
    profile.layers.emplace_back().name = layer.name;
  }
  const at::AutoGradMode grad_mode(true);
  const StateBackup backup(layers);
  TANDEM_RETURN_IF_ERROR(MeasureTimes(layers, entry, options, profile));
  const AutocastState here =
      AtHome(ParametersDevice(layers).type(), options.device.type());
  const AutocastGuard precision(
      here.type, here.is_enabled ? std::optional(here.dtype) : std::nullopt);
  TANDEM_RETURN_IF_ERROR(MeasureActivations(layers, entry, profile));
  CountState(layers, options.kept, profile);
  DropCopies(layers);
  return profile;
}

absl::StatusOr<SendingCost> MeasureCopy(c10::Device from, c10::Device to) {
  return CatchTorchOr([&] {
    const double small = SecondsFor(kSmall, from, to);
    const double big = SecondsFor(kBig, from, to);
    SendingCost cost;
    cost.seconds_per_byte = std::max(0.0, big - small) / (kBig - kSmall);
    cost.seconds_per_message =
        std::max(0.0, small - cost.seconds_per_byte * kSmall);
    return cost;
  });
}

}  // namespace tandem
