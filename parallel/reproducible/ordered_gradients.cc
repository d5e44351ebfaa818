#include "parallel/reproducible/ordered_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"

namespace tandem {

void GradientHalves::Add(int microbatch, const at::Tensor& part, bool awaits) {
  const at::NoGradGuard no_grad;
  const bool is_second =
      !entries_.empty() && entries_.front().sum.microbatch == microbatch;
  if (is_second) {
    Entry& entry = entries_.front();
    CHECK(!entry.is_whole && !awaits);
    at::Tensor& sum = entry.sum.gradient;
    // Two terms: their order does not matter.
    if (part.defined()) sum = sum.defined() ? part.add_(sum) : part;
    entry.is_whole = true;
    return;
  }
  const bool stays = awaits || !entries_.empty();
  entries_.push_back(
      {{microbatch, stays && part.defined() ? part.clone() : part}, !awaits});
}

std::optional<GradientHalves::Whole> GradientHalves::Next() {
  if (entries_.empty() || !entries_.front().is_whole) return std::nullopt;
  Whole next = std::move(entries_.front().sum);
  entries_.pop_front();
  return next;
}

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

int OrderedGradients::GroupIndex(int microbatch) const {
  return first_group_ + microbatch / (order_.microbatches / own_groups_);
}

const std::string& OrderedGradients::ParameterName(
    const Gathering& each) const {
  return each.buffer->slots()[each.buffer->index_of(each.id)].name;
}

at::Tensor OrderedGradients::Place(const Gathering& each,
                                   const at::Tensor& flat) const {
  const FlatSlot& slot = each.buffer->slots()[each.buffer->index_of(each.id)];
  return flat.narrow(0, slot.offset, slot.end - slot.offset);
}

at::Tensor OrderedGradients::PlaceOfGroup(const Gathering& each) {
  // What one action gives is a group, or autograd adds to what lies there.
  const bool in_place = !order_.splits || own_groups_ == order_.microbatches;
  return in_place ? Place(each, each.buffer->grads())
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
    const int group = GroupIndex(action.microbatch);
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
        each.group = GroupIndex(action.microbatch);
        each.halves |= 1 << action.microbatch % 2;
      }
      each.touched = each.awaits = false;
      if (!last) continue;
      if (!each.parts.empty()) {
        return absl::InternalError(absl::StrCat(
            ParameterName(each), " was left a gradient that did not come"));
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
      each->touched ? Place(*each, each->buffer->grads()) : at::Tensor();
  if (each->touched) SetHasGradient(*each, false);
  each->parts.Add(action.microbatch, part, each->awaits);
  while (const auto whole = each->parts.Next()) {
    AddWhole(whole->microbatch, whole->gradient, each);
  }
}

// All of a microbatch's gradient.
void OrderedGradients::AddWhole(int microbatch, const at::Tensor& sum,
                                Gathering* each) {
  const int group = GroupIndex(microbatch);
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

// The sum of its group to the tree.
void OrderedGradients::AddGroup(Gathering* each) {
  const int group = each->group;
  each->group = kNone;
  SetHasGradient(*each, false);
  AddZerosUpTo(group, each);
  const at::Tensor sum = PlaceOfGroup(*each);
  constexpr int kBoth = 3;
  // The tree adds what was not used: -0 becomes 0.
  if (pairs_ && each->halves != kBoth) sum.add_(0);
  each->halves = 0;
  AddToTree(group, sum, each);
}

// Groups that did not use the parameter add nothing; kNone: all that are left.
void OrderedGradients::AddZerosUpTo(int group, Gathering* each) {
  while (each->groups_done < own_groups_) {
    const int next =
        first_group_ + (order_.descends ? own_groups_ - 1 - each->groups_done
                                        : each->groups_done);
    if (next == group) return;
    const at::Tensor like = Place(*each, each->buffer->grads());
    AddToTree(next, at::zeros_like(like), each);
  }
}

at::Tensor OrderedGradients::MemoryFor(const Gathering& each,
                                       at::Tensor* memory) {
  if (!memory->defined()) {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    *memory = at::zeros_like(each.buffer->grads());
  }
  return Place(each, *memory);
}

// A sum climbs as far as the other half of each node is there already.
void OrderedGradients::AddToTree(int group, const at::Tensor& sum,
                                 Gathering* each) {
  const at::NoGradGuard no_grad;
  ++each->groups_done;
  Memory& memory = memory_.at(each->buffer);
  Node node = {0, group};
  for (; !absl::c_linear_search(cover(), node);
       node = SummationTree::Parent(node)) {
    if (!tree_.has_sibling(node)) continue;
    const auto level = static_cast<size_t>(node.level);
    const at::Tensor place = MemoryFor(*each, &memory.waiting[level]);
    int& waiting = each->waiting[level];
    if (waiting == kNone) {
      place.copy_(sum);
      waiting = node.index;
      return;
    }
    CHECK_EQ(waiting, SummationTree::Sibling(node).index);
    sum.add_(place);
    waiting = kNone;
  }
  if (node == tree_.root()) {
    const at::Tensor place = Place(*each, each->buffer->grads());
    if (!place.is_alias_of(sum)) place.copy_(sum);
    SetHasGradient(*each, true);
    return;
  }
  const auto number =
      static_cast<size_t>(absl::c_find(cover(), node) - cover().begin());
  const at::Tensor place = PlaceOfSum(*each, number);
  if (!place.is_alias_of(sum)) place.copy_(sum);
}

// The place of a node of cover().
at::Tensor OrderedGradients::PlaceOfSum(const Gathering& each, size_t number) {
  if (is_pair()) return Place(each, each.buffer->grads());
  return MemoryFor(each, &memory_.at(each.buffer).sums[number]);
}

absl::Status OrderedGradients::Finish() {
  if (replicas_ == nullptr || replicas_->size() == 1) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(SettleUse());
  int number = 0;
  for (FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(
        Annotate(CatchTorch([&] { return Exchange(*buffer, number++); }),
                 absl::StrCat("gradients of ", buffer->slots().front().name,
                              " to ", buffer->slots().back().name)));
  }
  return absl::OkStatus();
}

// What no microbatch here used adds nothing; what none used anywhere gets no
// gradient.
absl::Status OrderedGradients::SettleUse() {
  const at::Tensor uses =
      at::zeros({static_cast<int64_t>(gathering_.size())}, at::kInt);
  auto* const use = uses.mutable_data_ptr<int32_t>();
  std::vector<std::string> unused;
  for (size_t i = 0; i < gathering_.size(); ++i) {
    Gathering& each = gathering_[i];
    // A replica without samples cannot tell: all others use it, or say so.
    use[i] =
        each.groups_done > 0 || (!has_acted_ && !order_.find_unused_parameters);
    if (each.groups_done > 0) continue;
    unused.push_back(ParameterName(each));
    for (size_t node = 0; node < cover().size(); ++node) {
      PlaceOfSum(each, node).zero_();
    }
  }
  if (has_acted_ && !unused.empty() && !order_.find_unused_parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters got no gradient from any microbatch: ", ShortList(unused),
        "; if that is right, set find_unused_parameters"));
  }
  if (order_.find_unused_parameters) {
    TANDEM_RETURN_IF_ERROR(replicas_->AllReduceSum(
        uses, [] { return "which parameters were used"; }));
  }
  for (size_t i = 0; i < gathering_.size(); ++i) {
    SetHasGradient(gathering_[i], use[i] != 0);
  }
  return absl::OkStatus();
}

absl::Status OrderedGradients::Exchange(FlatBuffer& buffer, int number) {
  if (is_pair()) {
    return replicas_->AllReduceSum(buffer.grads(), [] { return "their sum"; });
  }
  return exchange_->Sum(memory_.at(&buffer).sums, number, buffer.grads());
}

}  // namespace tandem
