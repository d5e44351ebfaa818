#include "parallel/data_parallel/replicated_tensors.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/describe_tensor.h"
#include "core/base/status_macros.h"
#include "parallel/data_parallel/replicate_backward.h"

namespace tandem {
namespace {

absl::Status CheckClone(const std::string& what,
                        const NamedTensors::value_type& master,
                        const NamedTensors& replica, size_t at, size_t number) {
  const bool is_there =
      at < replica.size() && replica[at].first == master.first;
  if (is_there && replica[at].second.sizes() == master.second.sizes()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "replica ", number, " is not a copy of the module: the module has ", what,
      " ", master.first, ", ", DescribeTensor(master.second),
      ", and the replica ",
      is_there ? DescribeTensor(replica[at].second) : "has none of that name",
      ": register the same in reset(), or give a factory that makes the same "
      "module"));
}

}  // namespace

ReplicatedTensors::ReplicatedTensors(std::vector<c10::Device> devices,
                                     bool counts_all_writes)
    : devices_(std::move(devices)),
      counts_all_writes_(counts_all_writes),
      suspect_(devices_.size()),
      distrusted_(devices_.size()) {}

absl::StatusOr<std::unique_ptr<ReplicatedTensors>> ReplicatedTensors::Create(
    const ModuleTensors& module, const std::vector<ModuleTensors>& replicas,
    const std::vector<c10::Device>& devices, bool counts_all_writes) {
  TANDEM_RETURN_IF_ERROR(CheckOnDevice(module, devices[0]));
  auto tensors =
      absl::WrapUnique(new ReplicatedTensors(devices, counts_all_writes));
  tensors->module_ = module;
  std::vector<const NamedTensors*> parameters, buffers;
  for (const ModuleTensors& each : replicas) {
    parameters.push_back(&each.parameters);
    buffers.push_back(&each.buffers);
  }
  TANDEM_RETURN_IF_ERROR(
      tensors->Add(module.parameters, parameters, /*are_buffers=*/false));
  TANDEM_RETURN_IF_ERROR(
      tensors->Add(module.buffers, buffers, /*are_buffers=*/true));
  TANDEM_RETURN_IF_ERROR(tensors->DropAliases());
  tensors->LayOut();
  return tensors;
}

absl::Status ReplicatedTensors::Add(
    const NamedTensors& master,
    const std::vector<const NamedTensors*>& replicas, bool are_buffers) {
  const std::string what = are_buffers ? "buffer" : "parameter";
  for (size_t i = 0; i < master.size(); ++i) {
    const auto& [name, tensor] = master[i];
    if (tensor.layout() != at::kStrided) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, " ", name, " is ", DescribeTensor(tensor),
          " and sparse, which cannot be replicated: make it dense"));
    }
    Entry entry;
    entry.name = name;
    entry.master = tensor;
    entry.is_buffer = are_buffers;
    for (size_t r = 0; r < replicas.size(); ++r) {
      TANDEM_RETURN_IF_ERROR(CheckClone(what, master[i], *replicas[r], i, r));
      entry.replicas.push_back((*replicas[r])[i].second);
    }
    entries_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

// A tensor that comes under several names (tied weights) has one route, and one
// memory. What is one tensor in the module may be several in a clone, but not
// the other way round.
absl::Status ReplicatedTensors::DropAliases() {
  for (size_t r = 0; r < devices_.size(); ++r) {
    std::map<const c10::TensorImpl*, const Entry*> first;
    for (Entry& entry : entries_) {
      at::Tensor& its = entry.replicas[r];
      const auto [at, fresh] =
          first.try_emplace(its.unsafeGetTensorImpl(), &entry);
      if (fresh) {
        its.set_requires_grad(false);  // it is no leaf
        continue;
      }
      if (!at->second->master.is_same(entry.master)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "replica ", r, " is not a copy of the module: ", at->second->name,
            " and ", entry.name,
            " are one tensor there, and two in the module"));
      }
      its.reset();
    }
  }
  return absl::OkStatus();
}

bool ReplicatedTensors::HasMoved(const Entry& entry) const {
  const at::Tensor& mine = entry.replicas[0];
  const at::Tensor& master = entry.master;
  if (entry.required_gradient != master.requires_grad()) return true;
  if (!mine.defined()) return false;
  return !mine.is_alias_of(master) ||
         mine.storage_offset() != master.storage_offset() ||
         mine.scalar_type() != master.scalar_type() ||
         mine.sizes() != master.sizes() || mine.strides() != master.strides();
}

// Replica 0's tensor is another name of the module's memory, and whoever writes
// to one of them counts it in both.
void ReplicatedTensors::ShareMemory(const Entry& entry) const {
  const at::Tensor& mine = entry.replicas[0];
  if (!mine.defined()) return;
  mine.set_data(entry.master.variable_data());
  if (entry.master.is_inference()) return;
  torch::autograd::impl::set_version_counter(
      mine, torch::autograd::impl::version_counter(entry.master));
}

void ReplicatedTensors::LayOut() {
  const at::NoGradGuard no_grad;
  units_.clear();
  std::vector<ReplicatedTensor> tensors;
  std::vector<at::Tensor> trained;
  for (Entry& entry : entries_) {
    entry.required_gradient = entry.master.requires_grad();
    if (entry.required_gradient) trained.push_back(entry.master);
    for (size_t r = 0; r < devices_.size(); ++r) {
      const at::Tensor& its = entry.replicas[r];
      if (!its.defined()) continue;
      EndRoute(its);
      // The old memory goes before there is new.
      if (r > 0) its.set_data(at::empty({0}, its.options()));
    }
    ShareMemory(entry);
    tensors.push_back({entry.master, entry.replicas,
                       entry.is_buffer && !entry.required_gradient});
  }
  is_routed_ = false;
  units_ = MakeCopyUnits(tensors, devices_);
  if (!counts_all_writes_) watch_.Watch(trained);
}

void ReplicatedTensors::Distrust() { distrusted_.assign(devices_.size(), 1); }

bool ReplicatedTensors::MustCopy(const CopyUnit& unit, size_t replica) const {
  return unit.Lacks(replica) || distrusted_[replica] != 0 ||
         (suspect_[replica] != 0 && !unit.is_state());
}

// What is not left to the replicas' threads.
void ReplicatedTensors::CopyAhead(size_t count) {
  for (CopyUnit& unit : units_) {
    bool is_packed = false;
    for (size_t r = 1; r < count; ++r) {
      if (!MustCopy(unit, r)) continue;
      if (!std::exchange(is_packed, true)) unit.Pack();
      if (unit.is_state()) unit.CopyTo(r);
    }
  }
}

void ReplicatedTensors::Route(size_t count) {
  if (!at::GradMode::is_enabled()) {
    if (!is_routed_) return;
    for (const Entry& entry : entries_) {
      for (const at::Tensor& its : entry.replicas) {
        if (its.defined()) EndRoute(its);
      }
    }
    is_routed_ = false;
    return;
  }
  std::vector<at::Tensor> masters;
  std::vector<std::vector<at::Tensor>> replicas(count);
  for (const Entry& entry : entries_) {
    if (!entry.required_gradient) continue;
    masters.push_back(entry.master);
    for (size_t r = 0; r < count; ++r) {
      replicas[r].push_back(entry.replicas[r]);
    }
  }
  RouteGradients(masters, replicas, devices_);
  is_routed_ = true;
}

absl::Status ReplicatedTensors::Begin(size_t count) {
  if (absl::c_any_of(entries_, [&](const Entry& e) { return HasMoved(e); })) {
    TANDEM_RETURN_IF_ERROR(CheckOnDevice(module_, devices_[0]));
    LayOut();
  }
  if (!counts_all_writes_ && watch_.MayHaveChanged()) {
    suspect_.assign(devices_.size(), 1);
  }
  CopyAhead(count);
  Route(count);
  return absl::OkStatus();
}

void ReplicatedTensors::CopyParameters(size_t replica) {
  for (CopyUnit& unit : units_) {
    if (unit.is_state() || !MustCopy(unit, replica)) continue;
    unit.CopyTo(replica);
  }
  suspect_[replica] = 0;
  distrusted_[replica] = 0;
}

int64_t ReplicatedTensors::bytes_copied() const {
  int64_t bytes = 0;
  for (const CopyUnit& unit : units_) bytes += unit.bytes_copied();
  return bytes;
}

}  // namespace tandem
