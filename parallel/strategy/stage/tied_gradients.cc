#include "parallel/strategy/stage/tied_gradients.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "parallel/ddp/model_state.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {
namespace {

std::vector<int> GroupRanks(const TiedGroup& group, const Schedule& schedule,
                            const PipelineLayout& layout) {
  std::set<int> ranks;
  for (const StageParameter& each : group) {
    ranks.insert(layout.RankFor(DeviceOfStage(schedule, each.stage)));
  }
  return {ranks.begin(), ranks.end()};
}

// Where the gradient of a slot lies, whether there is one or not.
at::Tensor SlotGradient(const FlatBuffer* buffer, size_t slot) {
  return buffer->View(buffer->grads(), buffer->slots()[slot]);
}

bool HasAny(const std::vector<at::Tensor>& terms) {
  return absl::c_any_of(terms,
                        [](const at::Tensor& each) { return each.defined(); });
}

at::Tensor SlotValue(const FlatBuffer* buffer, size_t slot) {
  return buffer->View(buffer->values(), buffer->slots()[slot]);
}

}  // namespace

absl::StatusOr<Communicator*> TiedGradients::CommunicatorFor(
    const std::vector<int>& ranks, const PipelineLayout& layout,
    const Group& group) {
  if (ranks.size() == 1) return nullptr;
  SubgroupOptions own;
  own.device = group.copies.front().buffer->grads().device();
  const bool is_shared =
      !layout.group->backend_names().HasStreams(own.device->type());
  std::unique_ptr<Communicator>& made =
      communicators_[{ranks, is_shared ? "" : group.name}];
  if (made == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(
        made, layout.group->Subgroup(ranks,
                                     absl::StrCat("tied weights of ranks ",
                                                  absl::StrJoin(ranks, ", ")),
                                     own));
  }
  return made.get();
}

absl::StatusOr<std::unique_ptr<TiedGradients>> TiedGradients::Create(
    const std::vector<TiedGroup>& groups, const Schedule& schedule,
    const PipelineLayout& layout, const FlatBufferList& buffers,
    TiedOrder order) {
  std::map<std::string, Copy> copies;
  for (FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) {
      copies[slot.name] = {buffer, slot.id};
    }
  }
  auto tied = std::make_unique<TiedGradients>();
  tied->order_ = order;
  for (const TiedGroup& each : groups) {
    Group group;
    group.name = each.front().name;
    const std::vector<int> ranks = GroupRanks(each, schedule, layout);
    std::vector<int64_t> rows(ranks.size(), 0);
    for (auto member = each.rbegin(); member != each.rend(); ++member) {
      if (member->is_shared) continue;
      const auto found = copies.find(member->name);
      if (found != copies.end()) group.copies.push_back(found->second);
      const int rank = layout.RankFor(DeviceOfStage(schedule, member->stage));
      const auto place =
          static_cast<size_t>(absl::c_find(ranks, rank) - ranks.begin());
      group.places.push_back({place, rows[place]++});
    }
    if (group.copies.empty()) continue;
    group.rows = *absl::c_max_element(rows);
    TANDEM_ASSIGN_OR_RETURN(group.ranks,
                            tied->CommunicatorFor(ranks, layout, group));
    tied->groups_.push_back(std::move(group));
  }
  return tied;
}

TiedGradients::Terms TiedGradients::OwnTerms(const Group& group) {
  const c10::Device device = group.copies.front().buffer->grads().device();
  Terms terms;
  for (const Copy& copy : group.copies) {
    const size_t i = copy.buffer->index_of(copy.id);
    terms.emplace_back();
    if (!copy.buffer->has_gradient(i)) continue;
    terms.back() = SlotGradient(copy.buffer, i).to(device);
  }
  return terms;
}

// A number behind each gradient tells whether there is one. It is read, which
// waits for the device, where this rank has none itself: else those that are
// not there are -0, which added change no bit.
absl::StatusOr<TiedGradients::Terms> TiedGradients::Gather(const Group& group,
                                                           const Terms& own) {
  const Copy& first = group.copies.front();
  const at::Tensor like =
      SlotGradient(first.buffer, first.buffer->index_of(first.id));
  const int64_t numel = like.numel();
  const at::Tensor mine =
      at::full({group.rows, numel + 1}, -0.0, like.options());
  for (size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined()) continue;
    const at::Tensor row = mine.select(0, static_cast<int64_t>(i));
    row.narrow(0, 0, numel).copy_(own[i].reshape({numel}));
    row.narrow(0, numel, 1).fill_(1);
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                          group.ranks->AllGather(mine, [&] {
                            return absl::StrCat("gradients of ", group.name);
                          }));
  Terms terms;
  const bool reads = !HasAny(own);
  for (const Place& place : group.places) {
    const at::Tensor row = all[place.rank].select(0, place.row);
    terms.emplace_back();
    if (reads && row[numel].item<double>() == 0) continue;
    terms.back() = row.narrow(0, 0, numel).view(like.sizes());
  }
  return terms;
}

absl::StatusOr<at::Tensor> TiedGradients::AllReduce(const Group& group,
                                                    const at::Tensor& own) {
  const Copy& first = group.copies.front();
  const at::Tensor like =
      SlotGradient(first.buffer, first.buffer->index_of(first.id));
  const int64_t numel = like.numel();
  // The last number counts the ranks that have a gradient: to be read, which
  // waits for the device, where this one has none.
  const at::Tensor flat = at::zeros({numel + 1}, like.options());
  const at::Tensor sum = flat.narrow(0, 0, numel);
  if (own.defined()) {
    sum.copy_(own.reshape({numel}));
    flat.narrow(0, numel, 1).fill_(1);
  }
  TANDEM_RETURN_IF_ERROR(group.ranks->AllReduceSum(
      flat, [&] { return absl::StrCat("gradient of ", group.name); }));
  if (!own.defined() && flat[numel].item<double>() == 0) return at::Tensor();
  return sum.view(like.sizes());
}

absl::Status TiedGradients::Sum(const Group& group) const {
  const at::NoGradGuard no_grad;
  const bool gathers = group.ranks != nullptr && order_ == TiedOrder::kByCopy;
  Terms terms = OwnTerms(group);
  if (gathers) {
    TANDEM_ASSIGN_OR_RETURN(terms, Gather(group, terms));
  }
  // In place of the first one, which the sum will take anyway: of a large
  // vocabulary another copy is much of a device's memory.
  at::Tensor sum;
  for (const at::Tensor& each : terms) {
    if (!each.defined()) continue;
    sum = sum.defined() ? sum.add_(each) : each;
  }
  if (group.ranks != nullptr && !gathers) {
    TANDEM_ASSIGN_OR_RETURN(sum, AllReduce(group, sum));
  }
  if (!sum.defined()) return absl::OkStatus();
  for (const Copy& copy : group.copies) {
    const size_t i = copy.buffer->index_of(copy.id);
    SlotGradient(copy.buffer, i).copy_(sum);
    copy.buffer->set_has_gradient(i, true);
  }
  return absl::OkStatus();
}

absl::Status TiedGradients::ShareValue(const Group& group) const {
  const at::NoGradGuard no_grad;
  // The first member is the last one both here and over ranks.
  const Copy& first = group.copies.back();
  const at::Tensor value =
      SlotValue(first.buffer, first.buffer->index_of(first.id))
          .contiguous()
          .clone();
  if (group.ranks != nullptr) {
    TANDEM_RETURN_IF_ERROR(CheckSameModel({{group.name, value}}, *group.ranks));
    TANDEM_RETURN_IF_ERROR(group.ranks->Broadcast(
        value, static_cast<int>(group.places.back().rank),
        [] { return "the values of a tied weight"; }));
  }
  for (const Copy& copy : group.copies) {
    const size_t i = copy.buffer->index_of(copy.id);
    const at::Tensor own = SlotValue(copy.buffer, i);
    if (own.sizes() != value.sizes()) {
      return absl::InvalidArgumentError(absl::StrCat(
          copy.buffer->slots()[i].name, " is ", DescribeTensor(own),
          ", but the weight that it is tied to is ", DescribeTensor(value)));
    }
    own.copy_(value);
    copy.buffer->CountWrite(i);
  }
  return absl::OkStatus();
}

// All of them in any case: others wait for this rank in each.
absl::Status TiedGradients::ShareValues() {
  absl::Status done;
  for (const Group& group : groups_) {
    done.Update(CatchTorch([&] { return ShareValue(group); },
                           absl::StrCat("tied weights of ", group.name)));
  }
  return done;
}

absl::Status TiedGradients::Synchronize() const {
  absl::Status all;
  for (const auto& each : communicators_) {
    all.Update(each.second->Synchronize());
  }
  return all;
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
