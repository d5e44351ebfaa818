#include "parallel/data_parallel/copy_units.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "core/device/memory_category.h"

namespace tandem {
namespace {

using Members = std::vector<ReplicatedTensor>;

// Bits of some kernels depend on where tensors begin.
constexpr int64_t kAlignment = 64;  // bytes
// Between neighbours of a span: padding.
constexpr int64_t kWidestGap = 2 * kAlignment;
// Above this a copy's own time is more than what it costs to begin one.
constexpr int64_t kSmall = int64_t{64} << 10;  // bytes

uint32_t VersionOf(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

int64_t ElementsOf(int64_t bytes, const at::Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  return (bytes + size - 1) / size;
}

// Where members begin in a block, and behind the last one its length.
std::vector<int64_t> OffsetsOf(CopyUnit::Kind kind, const Members& members) {
  std::vector<int64_t> offsets;
  int64_t next = 0;
  for (const ReplicatedTensor& each : members) {
    const at::Tensor& tensor = each.master;
    if (kind == CopyUnit::Kind::kSpan) {
      next = tensor.storage_offset() - members[0].master.storage_offset();
    }
    offsets.push_back(next);
    next += tensor.numel();
    if (kind == CopyUnit::Kind::kPacked) {
      const int64_t aligned = ElementsOf(kAlignment, tensor);
      next = (next + aligned - 1) / aligned * aligned;
    }
  }
  offsets.push_back(next);
  return offsets;
}

at::Tensor ViewOf(const at::Tensor& block, const at::Tensor& like,
                  int64_t offset) {
  return block.as_strided(like.sizes(), like.strides(),
                          block.storage_offset() + offset);
}

}  // namespace

CopyUnit::CopyUnit(Kind kind, Members members,
                   const std::vector<c10::Device>& devices)
    : kind_(kind), members_(std::move(members)) {
  CHECK(!members_.empty());
  const at::NoGradGuard no_grad;
  const at::Tensor first = members_[0].master.detach();
  offsets_ = OffsetsOf(kind_, members_);
  length_ = offsets_.back();
  offsets_.pop_back();
  if (kind_ == Kind::kAlone) source_ = first;
  if (kind_ == Kind::kSpan) {
    source_ = first.as_strided({length_}, {1}, first.storage_offset());
  }
  blocks_.resize(devices.size());
  versions_.assign(devices.size(), std::vector<Versions>(members_.size()));
  bytes_.resize(devices.size());
  for (size_t r = 1; r < devices.size(); ++r) GiveMemory(r, devices[r]);
}

void CopyUnit::GiveMemory(size_t replica, c10::Device device) {
  const at::Tensor& first = members_[0].master;
  if (!members_[0].replicas[replica].defined()) return;
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  const at::TensorOptions options =
      first.options().device(device).requires_grad(false);
  if (kind_ == Kind::kAlone) {
    blocks_[replica] = at::empty_like(first, options);
    members_[0].replicas[replica].set_data(blocks_[replica]);
    return;
  }
  blocks_[replica] = at::empty({length_}, options);
  for (size_t i = 0; i < members_.size(); ++i) {
    const at::Tensor& its = members_[i].replicas[replica];
    its.set_data(ViewOf(blocks_[replica], members_[i].master, offsets_[i]));
  }
}

bool CopyUnit::Lacks(size_t replica) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const ReplicatedTensor& member = members_[i];
    const Versions& copied = versions_[replica][i];
    if (!member.replicas[replica].defined()) continue;
    if (member.always || !copied.known || member.master.is_inference() ||
        copied.master != VersionOf(member.master) ||
        copied.replica != VersionOf(member.replicas[replica])) {
      return true;
    }
  }
  return false;
}

void CopyUnit::Pack() {
  if (kind_ != Kind::kPacked) return;
  const at::NoGradGuard no_grad;
  const at::Tensor& first = members_[0].master;
  if (!source_.defined()) {
    const MemoryCategoryScope scope(MemoryCategory::kTemporaries);
    source_ = at::empty({length_}, first.options().requires_grad(false));
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    const at::Tensor& master = members_[i].master;
    ViewOf(source_, master, offsets_[i]).copy_(master);
  }
}

void CopyUnit::CopyTo(size_t replica) {
  if (!blocks_[replica].defined()) return;  // known by another name
  const at::NoGradGuard no_grad;
  std::vector<uint32_t> masters;
  for (const ReplicatedTensor& each : members_) {
    masters.push_back(VersionOf(each.master));
  }
  blocks_[replica].copy_(source_);
  bytes_[replica] += static_cast<int64_t>(source_.nbytes());
  for (size_t i = 0; i < members_.size(); ++i) {
    Versions& copied = versions_[replica][i];
    const at::Tensor& its = members_[i].replicas[replica];
    const bool changed =
        copied.master != masters[i] || copied.replica != VersionOf(its);
    // A block does not count its tensors' changes. What a buffer that is the
    // same was saved for stays good.
    if (copied.known && changed && !its.is_inference()) {
      torch::autograd::impl::bump_version(its);
    }
    copied = {true, masters[i], VersionOf(its)};
  }
}

int64_t CopyUnit::bytes_copied() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
}

namespace {

bool IsDense(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
}

// Of what may be in one unit.
using Sort = std::tuple<at::ScalarType, bool, bool>;
Sort SortOf(const ReplicatedTensor& tensor) {
  return {tensor.master.scalar_type(), tensor.master.requires_grad(),
          tensor.always};
}

bool ComesBefore(const ReplicatedTensor& a, const ReplicatedTensor& b) {
  const auto place = [](const at::Tensor& tensor) {
    return std::make_pair(tensor.storage().unsafeGetStorageImpl(),
                          tensor.storage_offset());
  };
  return place(a.master) < place(b.master);
}

bool IsNext(const at::Tensor& tensor, const at::Tensor& before) {
  const int64_t gap =
      tensor.storage_offset() - before.storage_offset() - before.numel();
  return tensor.is_alias_of(before) && gap >= 0 &&
         gap < ElementsOf(kWidestGap, tensor);
}

// Of tensors of one sort, in the order of ComesBefore.
std::vector<Members> RunsOf(Members tensors) {
  std::vector<Members> runs;
  for (ReplicatedTensor& each : tensors) {
    if (runs.empty() || !IsNext(each.master, runs.back().back().master)) {
      runs.emplace_back();
    }
    runs.back().push_back(std::move(each));
  }
  return runs;
}

}  // namespace

std::vector<CopyUnit> MakeCopyUnits(const Members& tensors,
                                    const std::vector<c10::Device>& devices) {
  using Kind = CopyUnit::Kind;
  std::vector<CopyUnit> units;
  std::map<Sort, Members> by_sort;
  std::set<const c10::TensorImpl*> seen;
  for (const ReplicatedTensor& each : tensors) {
    const bool fresh = seen.insert(each.master.unsafeGetTensorImpl()).second;
    if (fresh && IsDense(each.master)) {
      by_sort[SortOf(each)].push_back(each);
    } else {
      units.emplace_back(Kind::kAlone, Members{each}, devices);
    }
  }
  for (auto& [sort, members] : by_sort) {
    std::stable_sort(members.begin(), members.end(), ComesBefore);
    Members small;
    for (Members& run : RunsOf(std::move(members))) {
      const auto bytes = static_cast<int64_t>(run[0].master.nbytes());
      if (run.size() == 1 && bytes <= kSmall) {
        small.push_back(std::move(run[0]));
      } else {
        units.emplace_back(Kind::kSpan, std::move(run), devices);
      }
    }
    if (small.empty()) continue;
    const Kind kind = small.size() == 1 ? Kind::kSpan : Kind::kPacked;
    units.emplace_back(kind, std::move(small), devices);
  }
  return units;
}

}  // namespace tandem
