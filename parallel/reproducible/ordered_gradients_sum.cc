// From groups' sums to those of the whole batch.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/some_of.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "parallel/reproducible/ordered_gradients.h"

namespace tandem {

// The sum of its group to the tree.
void OrderedGradients::AddGroup(Gathering* each) {
  const int group = each->group;
  each->group = kNone;
  SetHasGradient(*each, false);
  AddZerosUpTo(group, each);
  const at::Tensor sum = PlaceOfGroup(*each);
  constexpr int kBoth = 3;
  // As the tree adds what was not used: -0 becomes 0.
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
    const at::Tensor like = PlaceOf(*each, each->buffer->grads());
    AddToTree(next, at::zeros_like(like), each);
  }
}

at::Tensor OrderedGradients::MemoryFor(const Gathering& each,
                                       at::Tensor* memory) {
  if (!memory->defined()) {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    *memory = at::zeros_like(each.buffer->grads());
  }
  return PlaceOf(each, *memory);
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
    const at::Tensor place = PlaceOf(*each, each->buffer->grads());
    if (!place.is_alias_of(sum)) place.copy_(sum);
    SetHasGradient(*each, true);
    return;
  }
  const auto number =
      static_cast<size_t>(absl::c_find(cover(), node) - cover().begin());
  const at::Tensor place = PlaceOfSum(*each, number);
  if (!place.is_alias_of(sum)) place.copy_(sum);
}

// Of a node of cover().
at::Tensor OrderedGradients::PlaceOfSum(const Gathering& each, size_t number) {
  if (is_pair()) return PlaceOf(each, each.buffer->grads());
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
    unused.push_back(NameOf(each));
    for (size_t node = 0; node < cover().size(); ++node) {
      PlaceOfSum(each, node).zero_();
    }
  }
  if (has_acted_ && !unused.empty() && !order_.find_unused_parameters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters got no gradient from any microbatch: ", SomeOf(unused),
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
