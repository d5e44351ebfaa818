// Exponential moving averages of weights: after each update the averages take a
// step towards the parameters, and evaluation sees them instead.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/device/memory_category.h"
#include "core/model/layer_list.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/slot_slice.h"
#include "parallel/pipeline/stage/stage.h"
#include "parallel/schedule/schedule.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

// Elements that are worked on at once, beside a scratch space of that size: on
// the CPU all stay in the cache.
constexpr int64_t kHostChunk = 1 << 15;
constexpr int64_t kDeviceChunk = 1 << 24;

std::string AverageName(const std::string& parameter) {
  return absl::StrCat(parameter, ".", kAverageState);
}

bool IsAverage(const std::string& state) {
  return absl::EndsWith(state, AverageName(""));
}

StoredTensors AveragesIn(const StoredTensors& state) {
  StoredTensors averages;
  for (const StoredTensor& each : state) {
    if (IsAverage(each.info.name)) averages.Add(each);
  }
  return averages;
}

// Averages of one flat buffer's parameters, zero at first. Throws c10::Error.
class Averages {
 public:
  explicit Averages(FlatBuffer* buffer)
      : buffer_(buffer),
        own_(buffer->value_memory().own()),
        values_(buffer->value_memory().is_sharded()
                    ? buffer->AddPartialState(own_.begin, own_.end)
                    : buffer->AddState()) {}

  const FlatBuffer& buffer() const { return *buffer_; }
  // Whether other ranks have other parameters' averages.
  bool is_shared() const { return values_.numel() < buffer_->values().numel(); }
  const at::Tensor& values() const { return values_; }
  FlatShare Share(bool is_first) const { return {own_, values_, is_first}; }
  // A slot's averages; of shared ones their form alone, on no device.
  at::Tensor View(const FlatSlot& slot) const {
    if (!is_shared()) return buffer_->View(values_, slot);
    return at::empty(slot.parameter.sizes(),
                     values_.options().device(c10::kMeta));
  }

  // Adds (parameters - averages) * weight. Each operation rounds by itself: the
  // bits do not depend on where a parameter lies.
  void Step(const at::Tensor& weight) const {
    const at::Tensor same = weight.to(values_.scalar_type());
    ForEachChunk([&](const at::Tensor& average, const at::Tensor& parameter,
                     at::Tensor scratch) {
      at::sub_out(scratch, parameter, average);
      average.add_(scratch.mul_(same));
    });
  }

  // Parameters become the averages, and the averages what parameters were.
  void Swap() const {
    ForEachChunk([](const at::Tensor& average, const at::Tensor& parameter,
                    const at::Tensor& scratch) {
      scratch.copy_(average);
      average.copy_(parameter);
      parameter.copy_(scratch);
    });
    buffer_->CountWrite();
  }

  void Clear() const { values_.zero_(); }

 private:
  template <typename Work>
  void ForEachChunk(Work work) const {
    const MemoryCategoryScope category(MemoryCategory::kTemporaries);
    const int64_t size = values_.numel();
    const int64_t chunk =
        std::min(size, values_.is_cpu() ? kHostChunk : kDeviceChunk);
    const at::Tensor scratch = at::empty_like(values_.narrow(0, 0, chunk));
    for (int64_t begin = 0; begin < size; begin += chunk) {
      const int64_t length = std::min(chunk, size - begin);
      work(values_.narrow(0, begin, length),
           buffer_->value_memory().Part(own_.begin + begin,
                                        own_.begin + begin + length),
           scratch.narrow(0, 0, length));
    }
  }

  FlatBuffer* buffer_;
  ElementSpan own_;    // of the parameters: those that are here for good
  at::Tensor values_;  // of these
};

using SlotVisitor =
    absl::FunctionRef<void(const std::string& name, const FlatSlot& slot)>;

// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): the
// first update copies, and buffers are the model's own. A step that the loss's
// scale leaves out is no update, which the host need not know of.
class EmaPart : public StepPart {
 public:
  explicit EmaPart(const MeshModel& model) : model_(model) {}

  absl::Status Start() override;
  absl::Status Update(const StepContext& step, int stage) override;
  absl::Status BeginInference(int stage) override;
  absl::Status EndInference(int stage) override;

  // Under each name of a parameter, as a checkpoint has parameters.
  NamedTensors State(int stage) const override;
  StatePart SharedState(int stage) const override;
  absl::StatusOr<NamedTensors> GatherState(int stage) const override;
  bool HasState(const std::string& name) const override {
    return IsAverage(name);
  }
  absl::Status CheckState(int stage, const StoredTensors& state) const override;
  absl::Status LoadState(int stage, const StoredTensors& state) override;

 private:
  // What is kept of a stage.
  struct Kept {
    std::vector<Averages> averages;  // by flat buffer
    // A number on their device: 1 after the first update, 0 before it.
    at::Tensor begun;
    bool shown = false;  // parameters have their values

    // Waits for the device.
    bool HasBegun() const {
      return begun.defined() && begun.item<double>() != 0;
    }
    void Swap() const {
      for (const Averages& each : averages) each.Swap();
    }
  };

  Kept& At(int stage) { return kept_[static_cast<size_t>(stage)]; }
  const Kept& At(int stage) const { return kept_[static_cast<size_t>(stage)]; }
  NamedTensors SlotStates(int stage) const;
  void VisitSlots(int stage, const Averages& averages,
                  const SlotVisitor& visit) const;
  absl::Status LoadAverages(int stage, const StoredTensors& averages) const;

  const MeshModel& model_;
  std::vector<Kept> kept_;  // by stage
};

absl::Status EmaPart::Start() {
  kept_.resize(model_.stages.size());
  return CatchTorch([&] {
    for (const int stage : model_.OwnStages()) {
      Kept& kept = At(stage);
      for (FlatBuffer* buffer : model_.stage(stage).parameters().all()) {
        kept.averages.emplace_back(buffer);
        if (kept.begun.defined()) continue;
        kept.begun =
            at::zeros({}, buffer->values().options().dtype(at::kDouble));
      }
    }
  });
}

// What has not begun is zero, and takes all of the first update.
absl::Status EmaPart::Update(const StepContext& step, int stage) {
  const Kept& kept = At(stage);
  if (!step.learning_rate.has_value() || kept.averages.empty()) {
    return absl::OkStatus();
  }
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    at::Tensor weight = 1 - kept.begun * model_.options.ema_decay;
    if (step.found_inf.empty()) {
      kept.begun.fill_(1);
    } else {
      const int device = DeviceOfStage(model_.options.schedule, stage);
      const at::Tensor taken = 1 - step.found_inf[model_.LocalDevice(device)];
      weight.mul_(taken);
      kept.begun.add_(taken).clamp_max_(1);
    }
    for (const Averages& each : kept.averages) each.Step(weight);
  });
}

absl::Status EmaPart::BeginInference(int stage) {
  Kept& kept = At(stage);
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    if (!kept.HasBegun()) return;
    kept.Swap();
    kept.shown = true;
  });
}

absl::Status EmaPart::EndInference(int stage) {
  Kept& kept = At(stage);
  if (!std::exchange(kept.shown, false)) return absl::OkStatus();
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    kept.Swap();
  });
}

NamedTensors EmaPart::SlotStates(int stage) const {
  NamedTensors state;
  for (const Averages& each : At(stage).averages) {
    for (const FlatSlot& slot : each.buffer().slots()) {
      state.emplace_back(AverageName(slot.name), each.View(slot));
    }
  }
  return state;
}

// Calls `visit` with each of a parameter's names and its slot in one buffer.
void EmaPart::VisitSlots(int stage, const Averages& averages,
                         const SlotVisitor& visit) const {
  std::map<const c10::TensorImpl*, const FlatSlot*> slots;  // by parameter
  for (const FlatSlot& slot : averages.buffer().slots()) {
    slots[slot.parameter.unsafeGetTensorImpl()] = &slot;
  }
  const auto& layers_of = model_.executor->stages()[static_cast<size_t>(stage)];
  for (const auto& [name, parameter] : NamedParameters(layers_of->layers())) {
    const auto found = slots.find(parameter.unsafeGetTensorImpl());
    if (found != slots.end()) visit(AverageName(name), *found->second);
  }
}

NamedTensors EmaPart::State(int stage) const {
  const Kept& kept = At(stage);
  NamedTensors state;
  if (!kept.HasBegun()) return state;
  for (const Averages& each : kept.averages) {
    if (each.is_shared()) continue;
    VisitSlots(stage, each, [&](const std::string& name, const FlatSlot& slot) {
      state.emplace_back(name, each.View(slot));
    });
  }
  return state;
}

StatePart EmaPart::SharedState(int stage) const {
  const Kept& kept = At(stage);
  StatePart shared;
  if (!kept.HasBegun()) return shared;
  for (const Averages& each : kept.averages) {
    if (!each.is_shared()) continue;
    const FlatShare share =
        each.Share(model_.stage(stage).sharers()->rank() == 0);
    VisitSlots(stage, each, [&](const std::string& name, const FlatSlot& slot) {
      AddSlice(slot, share, name, &shared);
    });
  }
  return shared;
}

absl::StatusOr<NamedTensors> EmaPart::GatherState(int stage) const {
  const Kept& kept = At(stage);
  NamedTensors state = State(stage);
  if (!kept.HasBegun()) return state;
  for (const Averages& each : kept.averages) {
    if (!each.is_shared()) continue;
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor all,
                            GatherOnFirst(each.buffer(), each.values(),
                                          *model_.stage(stage).sharers()));
    if (!all.defined()) continue;
    VisitSlots(stage, each, [&](const std::string& name, const FlatSlot& slot) {
      state.emplace_back(name, each.buffer().View(all, slot));
    });
  }
  return state;
}

absl::Status EmaPart::CheckState(int stage, const StoredTensors& state) const {
  const StoredTensors averages = AveragesIn(state);
  return averages.empty() ? absl::OkStatus()
                          : CheckModelState(averages, SlotStates(stage));
}

absl::Status EmaPart::LoadAverages(int stage,
                                   const StoredTensors& averages) const {
  std::map<std::string, const StoredTensor*> given;
  for (const StoredTensor& each : averages) given[each.info.name] = &each;
  for (const Averages& each : At(stage).averages) {
    for (const FlatSlot& slot : each.buffer().slots()) {
      const StoredTensor& values = *given.at(AverageName(slot.name));
      TANDEM_RETURN_IF_ERROR(
          each.is_shared()
              ? ReadSlice(values, slot, each.Share(/*is_first=*/false))
              : ReadInto(values, each.View(slot)));
    }
  }
  return absl::OkStatus();
}

// Without any, they begin with the next update.
absl::Status EmaPart::LoadState(int stage, const StoredTensors& state) {
  const Kept& kept = At(stage);
  if (kept.averages.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckState(stage, state));
  const StoredTensors averages = AveragesIn(state);
  const bool begun = !averages.empty();
  if (begun) TANDEM_RETURN_IF_ERROR(LoadAverages(stage, averages));
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    if (!begun) {
      for (const Averages& each : kept.averages) each.Clear();
    }
    kept.begun.fill_(begun ? 1 : 0);
  });
}

absl::StatusOr<std::unique_ptr<StepPart>> MakeEma(MeshModel& model) {
  if (model.options.ema_decay == 0) return std::unique_ptr<StepPart>();
  return std::make_unique<EmaPart>(model);
}

void DescribeEma(const MeshStrategyOptions& options, NamedValues& values) {
  values["ema_decay"] = NumberText(options.ema_decay);
}

absl::Status CheckEma(const MeshStrategyOptions& options) {
  if (options.ema_decay >= 0 && options.ema_decay < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ema_decay is ", options.ema_decay,
                   ": must be at least 0 and less than 1"));
}

int EmaTensors(const MeshStrategyOptions& options, int replicas) {
  return options.ema_decay == 0 ? 0 : 1;
}

constexpr const char* kEmaFlags[] = {"ema_decay"};

constexpr Exclusion kEmaExcludes[] = {
    {"averaging",
     [](const MeshStrategyOptions& options) {
       return options.averaging.has_value();
     },
     "averaging, with which replicas have weights of their own",
     "average_parameters_every",
     "$0 averages weights that all replicas have alike, which $2 does not give "
     "in each step: leave one of them out"},
    {"strategy", /*is_given=*/nullptr, "", "strategy=parameter_server",
     "$0 averages weights where they are updated, which with $1 is on servers, "
     "which have no averages: leave it out, or take another strategy"},
};

}  // namespace

constexpr StepPartRow kEmaRow = {
    "ema",
    MakeEma,
    DescribeEma,
    CheckEma,
    {[](const MeshStrategyOptions& options) { return options.ema_decay != 0; },
     "ema_decay excludes ", "; leave one of them out", kEmaExcludes,
     "ema_decay"},
    EmaTensors,
    kEmaFlags};

}  // namespace tandem
