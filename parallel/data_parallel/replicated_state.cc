#include "parallel/data_parallel/replicated_state.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <map>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/device/memory_category.h"
#include "parallel/channel/copy_channel.h"

namespace tandem {
namespace {

using torch::autograd::variable_list;

// Input r is the gradient of replica r; the output is the sum. Runs as soon as
// it can, as gradient accumulators do.
class ReplicateBackward : public torch::autograd::Node {
 public:
  explicit ReplicateBackward(const std::vector<c10::Device>& devices)
      : Node(std::numeric_limits<uint64_t>::max()),
        devices_(devices),
        streams_(CurrentStreams(devices_)) {}

  std::string name() const override { return "ReplicateBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const c10::MultiStreamGuard guard(streams_);
    return {SumOverDevices(std::move(gradients), devices_)};
  }

 private:
  const std::vector<c10::Device> devices_;
  const std::vector<c10::Stream> streams_;
};

// Dense and sparse add up in this order alone.
at::Tensor Sum(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kSparse && b.layout() != at::kSparse ? b + a : a + b;
}

absl::Status CheckOn(const NamedTensors& tensors, const char* kind,
                     c10::Device device) {
  for (const auto& [name, tensor] : tensors) {
    if (IsOn(tensor, device)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the module must have its parameters and buffers on device ",
        device.str(), " (the first of device_ids), but ", kind, " ", name,
        " is on ", tensor.device().str(), ": move it there with module->to(\"",
        device.str(), "\")"));
  }
  return absl::OkStatus();
}

absl::Status CheckClone(const std::string& what,
                        const NamedTensors::value_type& master,
                        const NamedTensors& replica, size_t at, size_t number) {
  const bool is_there =
      at < replica.size() && replica[at].first == master.first;
  if (is_there && replica[at].second.is_same(master.second)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", number, " is the module itself and no copy: ", what, " ",
        master.first,
        " is the same tensor; give a factory that makes another module each "
        "time"));
  }
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

uint32_t TensorVersion(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

// Replica 0's tensor is another name of the module's memory, and whoever writes
// to one of them counts it in both.
void ShareMemory(const at::Tensor& master, const at::Tensor& mine) {
  mine.set_data(master.variable_data());
  if (master.is_inference()) return;
  torch::autograd::impl::set_version_counter(
      mine, torch::autograd::impl::version_counter(master));
}

}  // namespace

void RouteGradient(const at::Tensor& master,
                   const std::vector<at::Tensor>& replicas,
                   const std::vector<c10::Device>& devices) {
  CHECK(!replicas.empty() && replicas.size() <= devices.size());
  const auto end =
      devices.begin() + static_cast<std::ptrdiff_t>(replicas.size());
  const auto node = c10::make_intrusive<ReplicateBackward>(
      std::vector<c10::Device>(devices.begin(), end));
  node->set_next_edges(torch::autograd::collect_next_edges(master));
  for (const at::Tensor& each : replicas) {
    if (!each.defined()) {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
      continue;
    }
    const uint32_t number = node->add_input_metadata(each);
    torch::autograd::impl::set_gradient_edge(each, {node, number});
  }
}

void EndRoute(const at::Tensor& replica) {
  torch::autograd::impl::set_gradient_edge(replica, {});
}

at::Tensor SumOverDevices(std::vector<at::Tensor> gradients,
                          const std::vector<c10::Device>& devices) {
  const size_t count = gradients.size();
  CHECK(count > 0 && count <= devices.size());
  for (size_t step = 1; step < count; step *= 2) {
    for (size_t i = 0; i + step < count; i += 2 * step) {
      at::Tensor other = std::exchange(gradients[i + step], {});
      if (!other.defined()) continue;
      if (devices[i + step] != devices[i]) other = other.to(devices[i]);
      at::Tensor& sum = gradients[i];
      sum = sum.defined() ? Sum(sum, other) : other;
    }
  }
  return std::move(gradients[0]);
}

ReplicatedState::ReplicatedState(ModuleState module,
                                 std::vector<c10::Device> devices,
                                 bool counts_all_writes)
    : module_(std::move(module)),
      devices_(std::move(devices)),
      counts_all_writes_(counts_all_writes),
      copies_all_(devices_.size()),
      bytes_(devices_.size()) {}

absl::StatusOr<std::unique_ptr<ReplicatedState>> ReplicatedState::Create(
    ModuleState module, std::vector<c10::Device> devices,
    bool counts_all_writes) {
  auto state = absl::WrapUnique(new ReplicatedState(
      std::move(module), std::move(devices), counts_all_writes));
  TANDEM_RETURN_IF_ERROR(state->Check());
  return state;
}

absl::Status ReplicatedState::Check() const {
  TANDEM_RETURN_IF_ERROR(CheckOn(module_.parameters, "parameter", devices_[0]));
  return CheckOn(module_.buffers, "buffer", devices_[0]);
}

absl::Status ReplicatedState::AddReplicas(
    const std::vector<ModuleState>& replicas) {
  std::vector<const NamedTensors*> parameters, buffers;
  for (const ModuleState& each : replicas) {
    if (each.modules.size() != module_.modules.size()) {
      return absl::InvalidArgumentError(
          "a replica is not a copy of the module: it has another number of "
          "submodules");
    }
    parameters.push_back(&each.parameters);
    buffers.push_back(&each.buffers);
    modules_.push_back(each.modules);
  }
  TANDEM_RETURN_IF_ERROR(
      Add(module_.parameters, parameters, /*are_buffers=*/false));
  TANDEM_RETURN_IF_ERROR(Add(module_.buffers, buffers, /*are_buffers=*/true));
  TANDEM_RETURN_IF_ERROR(DropAliases());
  GiveMemory();
  return absl::OkStatus();
}

absl::Status ReplicatedState::Add(
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
absl::Status ReplicatedState::DropAliases() {
  for (size_t r = 0; r < devices_.size(); ++r) {
    std::map<const c10::TensorImpl*, const Entry*> first;
    for (Entry& entry : entries_) {
      at::Tensor& tensor = entry.replicas[r];
      const auto [at, fresh] =
          first.try_emplace(tensor.unsafeGetTensorImpl(), &entry);
      if (fresh) {
        tensor.set_requires_grad(false);  // it is no leaf
        continue;
      }
      if (!at->second->master.is_same(entry.master)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "replica ", r, " is not a copy of the module: ", at->second->name,
            " and ", entry.name,
            " are one tensor there, and two in the module"));
      }
      tensor.reset();
    }
  }
  return absl::OkStatus();
}

bool ReplicatedState::HasMoved(const Entry& entry) const {
  const at::Tensor& mine = entry.replicas[0];
  const at::Tensor& master = entry.master;
  if (entry.required_gradient != master.requires_grad()) return true;
  if (!mine.defined()) return false;
  return !mine.is_alias_of(master) ||
         mine.storage_offset() != master.storage_offset() ||
         mine.scalar_type() != master.scalar_type() ||
         mine.sizes() != master.sizes() || mine.strides() != master.strides();
}

void ReplicatedState::GiveMemory() {
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  for (Entry& entry : entries_) {
    entry.required_gradient = entry.master.requires_grad();
    entry.copied.assign(devices_.size(), std::nullopt);
    const at::TensorOptions options =
        entry.master.options().requires_grad(false);
    for (size_t r = 0; r < devices_.size(); ++r) {
      const at::Tensor& tensor = entry.replicas[r];
      if (!tensor.defined()) continue;
      EndRoute(tensor);
      if (r == 0) {
        ShareMemory(entry.master, tensor);
        continue;
      }
      // The old memory goes before there is new.
      tensor.set_data(at::empty({0}, tensor.options()));
      tensor.set_data(
          at::empty_like(entry.master, options.device(devices_[r])));
    }
  }
}

void ReplicatedState::NoteChange() { copies_all_.assign(devices_.size(), 1); }

void ReplicatedState::FollowModes() {
  bool differed = false;
  for (const SubModules& replica : modules_) {
    for (size_t i = 0; i < replica.size(); ++i) {
      const bool training = module_.modules[i]->is_training();
      if (replica[i]->is_training() == training) continue;
      replica[i]->train(training);
      differed = true;
    }
  }
  // With the mode weights may have been exchanged (for their moving averages,
  // say).
  if (differed) NoteChange();
}

void ReplicatedState::Route(size_t count) const {
  for (const Entry& entry : entries_) {
    if (!entry.required_gradient) continue;
    const std::vector<at::Tensor> replicas(
        entry.replicas.begin(),
        entry.replicas.begin() + static_cast<std::ptrdiff_t>(count));
    if (at::GradMode::is_enabled()) {
      RouteGradient(entry.master, replicas, devices_);
      continue;
    }
    for (const at::Tensor& tensor : replicas) {
      if (tensor.defined()) EndRoute(tensor);
    }
  }
}

absl::Status ReplicatedState::Begin(size_t count) {
  return CatchTorch([&] {
    FollowModes();
    if (absl::c_any_of(entries_, [&](const auto& e) { return HasMoved(e); })) {
      GiveMemory();
    }
    // Before any replica runs: the first one's forward may write to them.
    for (Entry& entry : entries_) {
      if (entry.required_gradient) continue;
      for (size_t r = 1; r < count; ++r) CopyTo(r, entry);
    }
    Route(count);
  });
}

void ReplicatedState::CopyParameters(size_t replica) {
  for (Entry& entry : entries_) {
    if (entry.required_gradient) CopyTo(replica, entry);
  }
  copies_all_[replica] = 0;
}

void ReplicatedState::CopyTo(size_t replica, Entry& entry) {
  const at::Tensor& tensor = entry.replicas[replica];
  const at::Tensor& master = entry.master;
  if (replica == 0 || !tensor.defined()) return;  // known by another name
  std::optional<Versions>& copied = entry.copied[replica];
  const uint32_t version = TensorVersion(master);
  const bool changed = copied != Versions(version, TensorVersion(tensor));
  // Kernels that write to a buffer need not count it.
  const bool counts = counts_all_writes_ && !copies_all_[replica] &&
                      !master.is_inference() &&
                      (!entry.is_buffer || entry.required_gradient);
  if (counts && !changed) return;
  const at::NoGradGuard no_grad;
  tensor.variable_data().copy_(master);  // which counts nothing
  bytes_[replica] += static_cast<int64_t>(master.nbytes());
  // Autograd hears of what has changed. What a tensor that is the same was
  // saved for stays good.
  if (copied.has_value() && changed && !tensor.is_inference()) {
    torch::autograd::impl::bump_version(tensor);
  }
  copied = Versions(version, TensorVersion(tensor));
}

int64_t ReplicatedState::bytes_copied() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
}

}  // namespace tandem
