#include "parallel/activation_checkpointing/checkpoint_frame.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/random/default_generator.h"

namespace tandem {
namespace {

using torch::autograd::SavedVariableHooks;

// No std::exception: it is not to be caught as one on its way out.
struct AllIsThere {};

// The graph task under way; outside of all backwards another number each time.
int64_t CurrentBackward() {
  static std::atomic<int64_t> outside{-1};
  const int task = torch::autograd::get_current_graph_task_id();
  return task >= 0 ? task : --outside;
}

// Keeps a tensor as it is.
class Plainly final : public SavedVariableHooks {
 public:
  explicit Plainly(std::function<void(const at::Tensor&)> tell)
      : tell_(std::move(tell)) {}
  // An output that is kept with its graph would keep that alive, and itself.
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = tensor.requires_grad() ? tensor.detach() : tensor;
    std::exchange(tell_, nullptr)(tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  std::function<void(const at::Tensor&)> tell_;
  at::Tensor tensor_;
};

}  // namespace

// Keeps a number in a tensor's place.
class CheckpointFrame::Noted final : public SavedVariableHooks {
 public:
  explicit Noted(std::shared_ptr<CheckpointFrame> frame)
      : frame_(std::move(frame)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    slot_ = frame_->Note(tensor);
  }
  at::Tensor call_unpack_hook() override { return frame_->Find(slot_); }

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  std::shared_ptr<Slot> slot_;
};

// Fills the slots, in the order in which the function's operators keep tensors.
class CheckpointFrame::Recomputation final : public SavedTensorHooks {
 public:
  Recomputation(CheckpointFrame* frame, int64_t backward)
      : frame_(*frame), backward_(backward) {}

  std::unique_ptr<SavedVariableHooks> Make() override {
    return std::make_unique<Plainly>(
        [this](const at::Tensor& tensor) { Take(tensor); });
  }

  bool has_stopped() const { return has_stopped_; }

  void Check() const {
    if (!frame_.has_ended_) return;
    TORCH_CHECK(
        next_ == frame_.slots_.size(), frame_.options_.name, " has kept ",
        frame_.slots_.size(), " tensors for backward, but ", next_,
        " when it was computed again: it must do the same both times (what it "
        "reads beside its arguments may have changed since)");
    TORCH_CHECK(
        differences_.empty(), "computed again, ", frame_.options_.name,
        " has kept other tensors for backward than the first time: it must do "
        "the same both times (determinism_check): ",
        absl::StrJoin(differences_, "; "));
  }

 private:
  void Take(const at::Tensor& tensor) {
    const size_t number = next_++;
    if (number < frame_.descriptions_.size()) Compare(number, tensor);
    if (number < frame_.slots_.size()) {
      // Gone, if that part of the graph was dropped or has been used up.
      if (const auto slot = frame_.slots_[number].lock()) {
        slot->tensor = tensor;
        slot->backward = backward_;
      }
    }
    // An operator that draws is let end: noise is kept before it is drawn.
    has_stopped_ = frame_.options_.early_stop &&
                   next_ == frame_.slots_.size() &&
                   !DefaultGeneratorScope::IsDrawing();
    if (has_stopped_) throw AllIsThere();
  }

  void Compare(size_t number, const at::Tensor& tensor) {
    const std::string first = ToText(frame_.descriptions_[number]);
    const std::string again = ToText(Describe(tensor));
    if (first == again) return;
    differences_.push_back(
        absl::StrCat("tensor ", number, " was ", first, " and is ", again));
  }

  CheckpointFrame& frame_;
  const int64_t backward_;
  size_t next_ = 0;
  bool has_stopped_ = false;
  std::vector<std::string> differences_;
};

CheckpointFrame::CheckpointFrame(CheckpointOptions options, Function function,
                                 const std::vector<at::Tensor>& inputs)
    : options_(std::move(options)),
      function_(std::move(function)),
      context_(inputs, options_.preserve_rng_state) {
  for (const at::Tensor& each : inputs) {
    inputs_.emplace_back(each, /*is_output=*/false);
    versions_.push_back(each._version());
  }
}

void CheckpointFrame::End(const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i]._version() == versions_[i], options_.name,
                " changes its input ", i,
                " in place, which it needs a second time: use what gives "
                "another tensor");
  }
  has_ended_ = true;
}

std::unique_ptr<SavedVariableHooks> CheckpointFrame::Make() {
  return std::make_unique<Noted>(shared_from_this());
}

CheckpointFrame::Description CheckpointFrame::Describe(
    const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.scalar_type(), tensor.device()};
}

std::string CheckpointFrame::ToText(const Description& description) {
  return absl::StrCat(c10::toString(description.dtype), "[",
                      absl::StrJoin(description.sizes, ", "), "] on ",
                      description.device.str());
}

std::shared_ptr<CheckpointFrame::Slot> CheckpointFrame::Note(
    const at::Tensor& tensor) {
  auto slot = std::make_shared<Slot>();
  slot->number = slots_.size();
  slots_.push_back(slot);
  if (options_.determinism_check) {
    descriptions_.push_back(Describe(tensor));
  }
  return slot;
}

// Some operators ask twice, so the tensor stays: until its graph, the backward,
// or its being the last one ends.
at::Tensor CheckpointFrame::Find(const std::shared_ptr<Slot>& slot) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int64_t backward = CurrentBackward();
  if (slot->backward != backward) Recompute(backward);
  TORCH_CHECK(slot->tensor.defined(), options_.name,
              " did not come, when it was computed again, to tensor ",
              slot->number, " of those that it has kept for backward");
  return slot->tensor;
}

void CheckpointFrame::Recompute(int64_t backward) {
  std::vector<at::Tensor> inputs;
  for (const auto& each : inputs_) inputs.push_back(each.unpack());
  Recomputation recomputation(this, backward);
  try {
    const RecomputeContext::Scope scope(context_);
    const at::AutoGradMode with_graph(true);
    std::shared_ptr<void> context;
    if (options_.recompute_context) context = options_.recompute_context();
    const SavedTensorHooksScope hooks(&recomputation);
    function_(inputs);
  } catch (...) {
    // On its way out AllIsThere may have become another exception.
    if (!recomputation.has_stopped()) throw;
  }
  recomputation.Check();
  if (backward < 0) return;
  // Where the graph is kept for another backward, which computes it again.
  torch::autograd::Engine::get_default_engine().queue_callback(
      [frame = weak_from_this(), backward] {
        if (const auto alive = frame.lock()) alive->Forget(backward);
      });
}

void CheckpointFrame::Forget(int64_t backward) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const auto& each : slots_) {
    const auto slot = each.lock();
    if (slot == nullptr || slot->backward != backward) continue;
    slot->tensor.reset();
    slot->backward.reset();
  }
}

}  // namespace tandem
