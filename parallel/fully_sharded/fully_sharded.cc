#include "parallel/fully_sharded/fully_sharded.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/flight/recorder.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

void ThrowUnlessOk(const absl::Status& status) {
  TORCH_CHECK_WITH(DistError, status.ok(), status.message());
}

}  // namespace

struct FullySharded::Unit {
  std::unique_ptr<ShardUnit> shards;
  size_t slots = 0;  // of all its buffers
  // In a pass of backward.
  bool in_backward = false;
  std::set<const FlatSlot*> ready;  // slots that have their gradients
  // In a step.
  bool is_reduced = false;              // once at least
  std::vector<std::vector<char>> used;  // by buffer and slot
};

FullySharded::FullySharded(LayerUnits units, const ShardGroups& groups,
                           const FullyShardedOptions& options)
    : layers_(std::move(units)), groups_(groups), options_(options) {}

FullySharded::~FullySharded() {
  for (const auto& unit : units_) {
    for (FlatBuffer* buffer : unit->shards->buffers()) {
      buffer->set_on_gradient(nullptr);
    }
  }
}

std::unique_ptr<FullySharded> FullySharded::Create(
    LayerUnits units, const FlatBufferList& buffers, const ShardGroups& groups,
    const FullyShardedOptions& options) {
  auto made =
      absl::WrapUnique(new FullySharded(std::move(units), groups, options));
  const LayerUnits& layers = made->layers_;
  std::vector<std::vector<FlatBuffer*>> of_unit(layers.names.size());
  for (FlatBuffer* buffer : buffers) {
    const size_t unit = layers.unit_of.at(buffer->slots().front().name);
    for (const FlatSlot& slot : buffer->slots()) {
      CHECK_EQ(layers.unit_of.at(slot.name), unit) << slot.name;
    }
    of_unit[unit].push_back(buffer);
  }
  for (size_t i = 0; i < of_unit.size(); ++i) {
    auto unit = std::make_unique<Unit>();
    unit->shards =
        std::make_unique<ShardUnit>(layers.names[i], of_unit[i], groups,
                                    options.shards_values, options.param_dtype);
    for (FlatBuffer* buffer : of_unit[i]) {
      unit->slots += buffer->slots().size();
      unit->used.emplace_back(buffer->slots().size());
      buffer->set_on_gradient(
          [self = made.get(), at = unit.get(),
           others = buffer->on_gradient()](const FlatSlot& slot) {
            if (others) others(slot);
            self->OnGradient(*at, slot);
          });
    }
    made->units_.push_back(std::move(unit));
  }
  // By the last layer that computes with them.
  std::map<size_t, size_t> last;  // by unit
  for (size_t layer = 0; layer < layers.of_layer.size(); ++layer) {
    for (const size_t unit : layers.of_layer[layer]) last[unit] = layer;
  }
  for (const auto& each : last) made->backward_order_.push_back(each.first);
  absl::c_stable_sort(made->backward_order_, [&](size_t a, size_t b) {
    return last.at(a) > last.at(b);
  });
  return made;
}

// What the last layers needed goes when others come, so that the end of a
// forward keeps what its backward begins with.
void FullySharded::BeforeLayer(size_t layer) {
  if (holds_all_) return ThrowUnlessOk(HoldAll());
  const std::vector<size_t>& needed = layers_.of_layer[layer];
  if (stays_) {
    for (const size_t unit : needed) {
      ThrowUnlessOk(units_[unit]->shards->Unshard());
    }
    return;
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    const bool stays = units_[i]->in_backward || ahead_ == i ||
                       absl::c_linear_search(needed, i);
    if (!stays) ThrowUnlessOk(units_[i]->shards->Reshard());
  }
  for (const size_t unit : needed) {
    ThrowUnlessOk(units_[unit]->shards->Unshard());
  }
  if (ahead_.has_value() && absl::c_linear_search(needed, *ahead_)) {
    ahead_.reset();
  }
  for (size_t next = layer + 1; next < layers_.of_layer.size(); ++next) {
    for (const size_t unit : layers_.of_layer[next]) {
      if (absl::c_linear_search(needed, unit)) continue;
      ahead_ = unit;
      return ThrowUnlessOk(units_[unit]->shards->StartUnshard());
    }
  }
}

void FullySharded::AfterLayer(size_t layer, const LayerFlow& flow) {
  if (!at::GradMode::is_enabled() || stays_) return;
  const size_t next = layer + 1;
  const std::vector<size_t>& units = layers_.of_layer[layer];
  const bool ends =
      next == layers_.of_layer.size() || layers_.of_layer[next] != units;
  if (!ends || units.empty()) return;
  const auto watch = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    tensor.register_hook([this, units](const at::Tensor& /*gradient*/) {
      for (const size_t unit : units) ThrowUnlessOk(EnterBackward(unit));
    });
  };
  watch(flow.values);
  for (const auto& skip : flow.skips) watch(skip.second);
}

// One without microbatches would gather them at the step's end, stage by stage,
// and wait there for others' gradients, who wait for the next stage's values.
absl::Status FullySharded::BeginStep() {
  return holds_all_ ? StartAll() : absl::OkStatus();
}

absl::Status FullySharded::Unshard() {
  stays_ = true;
  return StartAll();
}

absl::StatusOr<bool> FullySharded::BeginInference(int microbatches) {
  Communicator& group = *groups_.gathers;
  constexpr const char* kWhat = "how much each replica evaluates";
  const FlightPurposeScope flight({kWhat});
  const at::Tensor all =
      at::zeros({static_cast<int64_t>(group.size())}, at::kInt);
  auto* const counts = all.mutable_data_ptr<int32_t>();
  counts[group.rank()] = microbatches;
  TANDEM_RETURN_IF_ERROR(group.AllReduceSum(all, [] { return kWhat; }));
  bool differ = false, goes_on = false;
  for (int64_t i = 0; i < all.numel(); ++i) {
    differ |= counts[i] != microbatches;
    goes_on |= counts[i] != kNoMore;
  }
  if (holds_all_) TANDEM_RETURN_IF_ERROR(Reshard());
  holds_all_ = differ && goes_on;
  if (!holds_all_) return goes_on;
  TANDEM_RETURN_IF_ERROR(StartAll());
  TANDEM_RETURN_IF_ERROR(HoldAll());
  return true;
}

// The unit of the first layer comes first.
absl::Status FullySharded::StartAll() {
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->StartUnshard());
  }
  return absl::OkStatus();
}

absl::Status FullySharded::Free() {
  stays_ = false;
  // Finish does it.
  return holds_all_ ? absl::OkStatus() : Reshard();
}

absl::Status FullySharded::HoldAll() {
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->Unshard());
  }
  return absl::OkStatus();
}

// With all that come before it in backward's order, as on every rank; and the
// next one, ahead.
absl::Status FullySharded::EnterBackward(size_t unit) {
  Unit& entered = *units_[unit];
  if (entered.in_backward || holds_all_) return absl::OkStatus();
  const auto place = static_cast<size_t>(absl::c_find(backward_order_, unit) -
                                         backward_order_.begin());
  for (; entered_ <= place; ++entered_) {
    Unit& each = *units_[backward_order_[entered_]];
    each.in_backward = true;
    TANDEM_RETURN_IF_ERROR(each.shards->StartUnshard());
  }
  entered.in_backward = true;
  TANDEM_RETURN_IF_ERROR(entered.shards->Unshard());
  if (entered_ == backward_order_.size()) return absl::OkStatus();
  ahead_ = backward_order_[entered_];
  return units_[*ahead_]->shards->StartUnshard();
}

void FullySharded::OnGradient(Unit& unit, const FlatSlot& slot) {
  unit.ready.insert(&slot);
  if (options_.defers || unit.ready.size() < unit.slots) return;
  if (reduces_) return ThrowUnlessOk(StartReady());
  if (holds_all_ || stays_) return;
  // Its gradients are another's affair, or wait for more.
  unit.in_backward = false;
  ThrowUnlessOk(unit.shards->Reshard());
}

// Units whose gradients are all there, up to the first that is not. The last
// gradient is that of the first layer that computes with them, by which units
// are numbered: of weights that the first and the last layer have in common it
// comes last, though their backward begins first.
absl::Status FullySharded::StartReady() {
  while (started_ < units_.size()) {
    Unit& next = *units_[units_.size() - 1 - started_];
    if (next.ready.size() < next.slots) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(Start(next));
  }
  return absl::OkStatus();
}

absl::Status FullySharded::Start(Unit& unit) {
  ++started_;
  // No more than two units' gradients are here in full.
  TANDEM_RETURN_IF_ERROR(FinishStarted());
  const std::vector<FlatBuffer*>& buffers = unit.shards->buffers();
  for (size_t b = 0; b < buffers.size(); ++b) {
    for (size_t i = 0; i < buffers[b]->slots().size(); ++i) {
      if (buffers[b]->has_gradient(i)) unit.used[b][i] = 1;
    }
  }
  TANDEM_RETURN_IF_ERROR(unit.shards->StartReduce(unit.is_reduced));
  unit.is_reduced = true;
  unit.in_backward = false;
  reducing_ = &unit;
  return stays_ ? absl::OkStatus() : unit.shards->Reshard();
}

// What is put in place from then on is another microbatch's.
absl::Status FullySharded::FinishStarted() {
  if (reducing_ == nullptr) return absl::OkStatus();
  Unit& unit = *std::exchange(reducing_, nullptr);
  TANDEM_RETURN_IF_ERROR(unit.shards->FinishReduce());
  for (FlatBuffer* buffer : unit.shards->buffers()) buffer->ZeroGrad();
  return absl::OkStatus();
}

absl::Status FullySharded::Prepare() {
  has_acted_ = stays_ = false;
  for (const auto& unit : units_) {
    unit->is_reduced = false;
    unit->ready.clear();
    for (std::vector<char>& each : unit->used) absl::c_fill(each, 0);
  }
  return Reshard();
}

absl::Status FullySharded::Before(const Action& action, bool last) {
  has_acted_ = true;
  reduces_ = options_.shards_gradients && !holds_all_ &&
             (options_.reduces_each || last);
  entered_ = started_ = 0;
  for (const auto& unit : units_) {
    unit->in_backward = false;
    unit->ready.clear();
    // Nobody enters layers' backward one by one.
    if (stays_) TANDEM_RETURN_IF_ERROR(unit->shards->Unshard());
  }
  return absl::OkStatus();
}

absl::Status FullySharded::After(const Action& action, bool last) {
  const bool reduces = reduces_;
  reduces_ = false;
  if (!reduces || !EndsBackward(action.kind)) return absl::OkStatus();
  return EndPass();
}

// Units with parameters that backward has not come to are reduced, too.
absl::Status FullySharded::EndPass() {
  while (started_ < units_.size()) {
    TANDEM_RETURN_IF_ERROR(Start(*units_[units_.size() - 1 - started_]));
  }
  return FinishStarted();
}

absl::Status FullySharded::Finish() {
  if (holds_all_ && options_.shards_gradients) {
    started_ = 0;
    TANDEM_RETURN_IF_ERROR(EndPass());
  }
  TANDEM_RETURN_IF_ERROR(Reshard());
  return options_.shards_gradients ? SettleUse() : absl::OkStatus();
}

// A parameter that was used on any rank has a gradient on all of them.
absl::Status FullySharded::SettleUse() {
  std::vector<int32_t> used;
  std::vector<std::string> unused;
  for (const auto& unit : units_) {
    const std::vector<FlatBuffer*>& buffers = unit->shards->buffers();
    for (size_t b = 0; b < buffers.size(); ++b) {
      for (size_t i = 0; i < unit->used[b].size(); ++i) {
        used.push_back(unit->used[b][i]);
        if (used.back() == 0 && has_acted_) {
          unused.push_back(buffers[b]->slots()[i].name);
        }
      }
    }
  }
  if (options_.find_unused_parameters) {
    constexpr const char* kWhat = "which parameters have a gradient";
    const FlightPurposeScope flight({kWhat});
    const at::Tensor all =
        at::zeros({static_cast<int64_t>(used.size())}, at::kInt);
    std::copy(used.begin(), used.end(), all.mutable_data_ptr<int32_t>());
    for (Communicator* group : {groups_.reduces, groups_.copies}) {
      if (group == nullptr) continue;
      TANDEM_RETURN_IF_ERROR(group->AllReduceSum(all, [] { return kWhat; }));
    }
    const auto* const numbers = all.const_data_ptr<int32_t>();
    used.assign(numbers, numbers + all.numel());
  } else if (!unused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters without a gradient in this step: ", ShortList(unused),
        "; leave them out of the model, freeze them, or set "
        "find_unused_parameters"));
  }
  auto next = used.begin();
  for (const auto& unit : units_) {
    for (FlatBuffer* buffer : unit->shards->buffers()) {
      for (size_t i = 0; i < buffer->slots().size(); ++i) {
        const bool is_used = *next++ > 0 || !options_.find_unused_parameters;
        buffer->set_has_gradient(i, is_used);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FullySharded::ParameterCopies> FullySharded::CopyParameters(
    bool wanted) {
  ParameterCopies copies;
  TANDEM_RETURN_IF_ERROR(Reshard());
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->UnshardValues());
    for (const FlatBuffer* buffer : unit->shards->buffers()) {
      for (const FlatSlot& slot : buffer->slots()) {
        if (!wanted) continue;
        TANDEM_ASSIGN_OR_RETURN(
            copies[slot.parameter.unsafeGetTensorImpl()], CatchTorchOr([&] {
              return slot.parameter.detach().to(
                  at::kCPU, /*non_blocking=*/false, /*copy=*/true);
            }));
      }
    }
    TANDEM_RETURN_IF_ERROR(unit->shards->Reshard());
  }
  return copies;
}

absl::Status FullySharded::BeginReplacing() {
  ahead_.reset();
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->BeginReplacing());
  }
  return absl::OkStatus();
}

absl::Status FullySharded::EndReplacing() {
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->EndReplacing());
  }
  return absl::OkStatus();
}

absl::Status FullySharded::Reshard() {
  ahead_.reset();
  for (const auto& unit : units_) {
    TANDEM_RETURN_IF_ERROR(unit->shards->Reshard());
  }
  return absl::OkStatus();
}

}  // namespace tandem
