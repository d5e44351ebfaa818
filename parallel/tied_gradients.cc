#include "parallel/tied_gradients.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status_macros.h"
#include "core/torch_status.h"

namespace tandem {
namespace {

std::vector<int> RanksOf(const TiedGroup& group, const Schedule& schedule,
                         const PipelineLayout& layout) {
  std::set<int> ranks;
  for (const StageParameter& each : group) {
    ranks.insert(layout.RankOf(DeviceOfStage(schedule, each.stage)));
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace

absl::StatusOr<Communicator*> TiedGradients::CommunicatorFor(
    const TiedGroup& group, const Schedule& schedule,
    const PipelineLayout& layout) {
  const std::vector<int> ranks = RanksOf(group, schedule, layout);
  if (ranks.size() == 1) return nullptr;
  std::unique_ptr<Communicator>& made = communicators_[ranks];
  if (made == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        made, layout.group->Subgroup(ranks,
                                     absl::StrCat("tied weights of ranks ",
                                                  absl::StrJoin(ranks, ", "))));
  }
  return made.get();
}

absl::StatusOr<std::unique_ptr<TiedGradients>> TiedGradients::Create(
    const std::vector<TiedGroup>& groups, const Schedule& schedule,
    const PipelineLayout& layout, const FlatBufferList& buffers) {
  std::map<std::string, Copy> copies;
  for (FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) {
      copies[slot.name] = {buffer, slot.id};
    }
  }
  auto tied = std::make_unique<TiedGradients>();
  for (const TiedGroup& each : groups) {
    Group group;
    group.name = each.front().name;
    for (auto member = each.rbegin(); member != each.rend(); ++member) {
      const auto found = copies.find(member->name);
      if (found != copies.end()) group.copies.push_back(found->second);
    }
    if (group.copies.empty()) continue;
    TANDEM_ASSIGN_OR_RETURN(group.ranks,
                            tied->CommunicatorFor(each, schedule, layout));
    tied->groups_.push_back(std::move(group));
  }
  return tied;
}

absl::Status TiedGradients::Sum(const Group& group) {
  const at::NoGradGuard no_grad;
  const auto gradient_of = [](const Copy& copy) {
    const size_t i = copy.buffer->index_of(copy.id);
    return copy.buffer->View(copy.buffer->grads(), copy.buffer->slots()[i]);
  };
  const c10::Device device = group.copies.front().buffer->grads().device();
  at::Tensor sum;
  for (const Copy& copy : group.copies) {
    if (!copy.buffer->has_gradient(copy.buffer->index_of(copy.id))) continue;
    const at::Tensor gradient = gradient_of(copy).to(device);
    sum = sum.defined() ? sum.add(gradient) : gradient.clone();
  }
  if (group.ranks != nullptr) {
    if (!sum.defined()) sum = at::zeros_like(gradient_of(group.copies.front()));
    sum = sum.contiguous();
    TANDEM_RETURN_IF_ERROR(group.ranks->AllReduceSum(
        sum, [&] { return absl::StrCat("gradient of ", group.name); }));
  }
  if (!sum.defined()) return absl::OkStatus();
  for (const Copy& copy : group.copies) {
    gradient_of(copy).copy_(sum);
    copy.buffer->set_has_gradient(copy.buffer->index_of(copy.id), true);
  }
  return absl::OkStatus();
}

void TiedGradients::Abort(const absl::Status& reason) {
  for (auto& each : communicators_) each.second->Abort(reason);
}

absl::Status TiedGradients::Sum() {
  for (const Group& group : groups_) {
    TANDEM_RETURN_IF_ERROR(
        CatchTorch([&] { return Sum(group); },
                   absl::StrCat("tied gradients of ", group.name)));
  }
  return absl::OkStatus();
}

}  // namespace tandem
