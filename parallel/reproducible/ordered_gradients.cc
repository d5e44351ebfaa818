#include "parallel/reproducible/ordered_gradients.h"

#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"

namespace tandem {

int OrderedGradients::FurtherBuffers(const GradientOrder& order, int replicas) {
  const int groups = order.groups / replicas;
  int buffers = 1;
  for (int held = 1; held < groups; held *= 2) ++buffers;
  if (order.splits && groups < order.microbatches) ++buffers;
  return replicas > 1 ? buffers + 1 : buffers;
}

OrderedGradients::OrderedGradients(FlatBufferList buffers,
                                   const GradientOrder& order,
                                   Communicator* replicas)
    : buffers_(std::move(buffers)),
      order_(order),
      replicas_(replicas),
      tree_(order.groups) {
  const int count = replicas_ == nullptr ? 1 : replicas_->size();
  const int rank = replicas_ == nullptr ? 0 : replicas_->rank();
  CHECK_EQ(order_.groups % count, 0);
  own_groups_ = order_.groups / count;
  CHECK_EQ(order_.microbatches % own_groups_, 0);
  pairs_ = own_groups_ == order_.microbatches && own_groups_ % 2 == 0 &&
           !order_.splits;
  if (pairs_) {
    order_.groups /= 2;
    own_groups_ /= 2;
    tree_ = SummationTree(order_.groups);
  }
  first_group_ = rank * own_groups_;
  exchange_.emplace(tree_, replicas_);
  const std::vector<int> none(static_cast<size_t>(tree_.levels()), kNone);
  for (FlatBuffer* buffer : buffers_) {
    for (const FlatSlot& slot : buffer->slots()) {
      number_of_[{buffer, slot.id}] = gathering_.size();
      number_of_weight_[slot.parameter.unsafeGetTensorImpl()] =
          gathering_.size();
      gathering_.push_back({buffer, slot.id, false, false, kNone, 0, 0, none});
    }
    memory_[buffer].waiting.resize(static_cast<size_t>(tree_.levels()));
    memory_[buffer].sums.resize(cover().size());
    buffer->set_on_gradient([this, buffer](const FlatSlot& slot) {
      gathering_[number_of_.at({buffer, slot.id})].touched = true;
    });
  }
}

absl::Status OrderedGradients::Prepare() {
  has_acted_ = false;
  const std::vector<int> none(static_cast<size_t>(tree_.levels()), kNone);
  for (Gathering& each : gathering_) {
    each = {each.buffer, each.id, false, false, kNone, 0, 0, none};
  }
  return absl::OkStatus();
}

int OrderedGradients::GroupOf(int microbatch) const {
  return first_group_ + microbatch / (order_.microbatches / own_groups_);
}

const std::string& OrderedGradients::NameOf(const Gathering& each) const {
  return each.buffer->slots()[each.buffer->index_of(each.id)].name;
}

at::Tensor OrderedGradients::PlaceOf(const Gathering& each,
                                     const at::Tensor& flat) const {
  const FlatSlot& slot = each.buffer->slots()[each.buffer->index_of(each.id)];
  return flat.narrow(0, slot.offset, slot.end - slot.offset);
}

at::Tensor OrderedGradients::PlaceOfGroup(const Gathering& each) {
  // What one action gives is a group, or autograd adds to what lies there.
  const bool in_place = !order_.splits || own_groups_ == order_.microbatches;
  return in_place ? PlaceOf(each, each.buffer->grads())
                  : MemoryFor(each, &memory_.at(each.buffer).group);
}

void OrderedGradients::SetHasGradient(const Gathering& each, bool on) {
  each.buffer->set_has_gradient(each.buffer->index_of(each.id), on);
}

// A group's gradients are complete when an action that would add to them begins
// with another group.
absl::Status OrderedGradients::Before(const Action& action, bool /*last*/) {
  has_acted_ = true;
  if (order_.splits) return absl::OkStatus();
  return CatchTorch([&] {
    const int group = GroupOf(action.microbatch);
    for (Gathering& each : gathering_) {
      if (each.group != kNone && each.group != group) AddGroup(&each);
    }
  });
}

void OrderedGradients::AwaitWeights(const std::vector<at::Tensor>& weights) {
  for (const at::Tensor& weight : weights) {
    const auto found = number_of_weight_.find(weight.unsafeGetTensorImpl());
    if (found != number_of_weight_.end()) {
      gathering_[found->second].awaits = true;
    }
  }
}

absl::Status OrderedGradients::After(const Action& action, bool last) {
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (Gathering& each : gathering_) {
      if (order_.splits) {
        AddPart(action, &each);
      } else if (each.touched) {
        each.group = GroupOf(action.microbatch);
        each.halves |= 1 << action.microbatch % 2;
      }
      each.touched = each.awaits = false;
      if (!last) continue;
      if (!each.parts.empty()) {
        return absl::InternalError(absl::StrCat(
            NameOf(each), " was left a gradient that did not come"));
      }
      if (each.group != kNone) AddGroup(&each);
      if (each.groups_done > 0) AddZerosUpTo(kNone, &each);
    }
    return absl::OkStatus();
  });
}

// Takes what the action gave out of grads(), so that the next one finds nothing
// to add to.
void OrderedGradients::AddPart(const Action& action, Gathering* each) {
  if (!each->touched && !each->awaits) return;
  const at::Tensor part =
      each->touched ? PlaceOf(*each, each->buffer->grads()) : at::Tensor();
  if (each->touched) SetHasGradient(*each, false);
  each->parts.Add(action.microbatch, part, each->awaits);
  while (const auto whole = each->parts.Next()) {
    AddWhole(whole->microbatch, whole->gradient, each);
  }
}

// All of a microbatch's gradient.
void OrderedGradients::AddWhole(int microbatch, const at::Tensor& sum,
                                Gathering* each) {
  const int group = GroupOf(microbatch);
  if (each->group != kNone && each->group != group) AddGroup(each);
  const at::Tensor place = PlaceOfGroup(*each);
  if (each->group == group) {
    place.add_(sum);
  } else if (!place.is_alias_of(sum)) {
    place.copy_(sum);
  }
  each->group = group;
  // Its place is needed.
  if (own_groups_ == order_.microbatches) AddGroup(each);
}

}  // namespace tandem
