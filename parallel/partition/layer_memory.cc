#include "parallel/partition/layer_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <glog/logging.h>
#include <torch/csrc/autograd/function.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/model/layer_links.h"
#include "core/model/layer_list.h"
#include "core/precision/low_precision_copy.h"

namespace tandem {
namespace {

// How much of the memory that operators make lives on, and who made it: what a
// layer's forward keeps for its backward, on any device and with any allocator.
// While it lives, it sees every operator's outputs on the calling thread (by
// LibTorch's RecordFunction); it keeps none of them alive. One a thread. Used
// by the thread that made it.
class StorageWatch {
 public:
  StorageWatch();
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  // A tensor that is there anyway, or is meant to stay: neither it nor views of
  // it are counted, whoever made them.
  void Ignore(const at::Tensor& tensor);

  // What is made from now on is `maker`'s, 0 or more. Before the first call
  // nothing is counted.
  void SetMaker(int maker) { maker_ = maker; }

  // The bytes of each maker's storages that something still holds. A storage
  // that several tensors share counts once, for who made it first.
  std::vector<int64_t> AliveBytes(int makers) const;

 private:
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int maker;
  };

  static void OnEnd(const at::RecordFunction& function,
                    at::ObserverContext* context);
  void See(const at::Tensor& tensor, int maker);

  int maker_ = -1;
  // The address of a storage stays its own while it is watched.
  std::map<const c10::StorageImpl*, Seen> seen_;
  at::CallbackHandle handle_;
};

thread_local StorageWatch* current = nullptr;

StorageWatch::StorageWatch() {
  CHECK(current == nullptr) << "this thread has a StorageWatch already";
  current = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(nullptr, &StorageWatch::OnEnd)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

StorageWatch::~StorageWatch() {
  at::removeCallback(handle_);
  current = nullptr;
}

void StorageWatch::OnEnd(const at::RecordFunction& function,
                         at::ObserverContext* /*context*/) {
  if (current == nullptr) return;
  for (const c10::IValue& output : function.outputs()) {
    if (output.isTensor()) {
      current->See(output.toTensor(), current->maker_);
    } else if (output.isTensorList()) {
      for (const at::Tensor& each : output.toTensorVector()) {
        current->See(each, current->maker_);
      }
    }
  }
}

void StorageWatch::Ignore(const at::Tensor& tensor) {
  See(tensor, -1);
  if (!tensor.defined() || !tensor.has_storage()) return;
  seen_.at(tensor.storage().unsafeGetStorageImpl()).maker = -1;
}

void StorageWatch::See(const at::Tensor& tensor, int maker) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  seen_.try_emplace(storage.unsafeGetStorageImpl(),
                    Seen{storage.getWeakStorageImpl(), maker});
}

std::vector<int64_t> StorageWatch::AliveBytes(int makers) const {
  std::vector<int64_t> bytes(static_cast<size_t>(makers), 0);
  for (const auto& [address, seen] : seen_) {
    if (seen.maker < 0 || seen.maker >= makers) continue;
    const auto alive = seen.storage.lock();
    if (alive) bytes[seen.maker] += static_cast<int64_t>(alive->nbytes());
  }
  return bytes;
}

int64_t StorageBytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

c10::Device ParametersDevice(const LayerList& layers) {
  for (const auto& each : NamedParameters(layers)) return each.second.device();
  for (const auto& each : NamedBuffers(layers)) return each.second.device();
  return c10::kCPU;
}

void CountState(const LayerList& layers, const StatePerParameter& kept,
                ModelProfile& profile) {
  profile.gathered_together = kept.gathered_together;
  std::map<const c10::TensorImpl*, std::vector<size_t>> holders;
  std::map<const c10::TensorImpl*, int64_t> states;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerProfile& layer = profile.layers[i];
    for (const auto& [name, parameter] : NamedParameters({layers[i]})) {
      StatePerParameter of_one = kept.For(name);
      // Replicas share what is trained.
      if (!parameter.requires_grad()) of_one.parameter_shares = 1;
      const StateBytes state =
          ComputeStateBytes(StorageBytes(parameter),
                            StorageBytes(KeptLowPrecisionCopy(parameter)),
                            parameter.requires_grad(), of_one);
      layer.parameter_bytes += StorageBytes(parameter);
      layer.state_bytes += state.total();
      layer.gathered_bytes += state.gathered;
      if (state.gathered > 0) layer.gathered_numbers += parameter.numel();
      holders[parameter.unsafeGetTensorImpl()].push_back(i);
      states[parameter.unsafeGetTensorImpl()] = state.total();
    }
    for (const auto& [name, buffer] : NamedBuffers({layers[i]})) {
      layer.state_bytes += StorageBytes(buffer);
    }
  }
  int number = 0;
  for (const auto& [parameter, sharing] : holders) {
    if (sharing.size() < 2) continue;
    for (size_t i : sharing) {
      profile.layers[i].shared_state[number] = states[parameter];
    }
    ++number;
  }
}

absl::Status MeasureActivations(const LayerList& layers, const LayerFlow& entry,
                                ModelProfile& profile) {
  StorageWatch watch;
  for (const auto& each : NamedParameters(layers)) watch.Ignore(each.second);
  for (const auto& each : NamedBuffers(layers)) watch.Ignore(each.second);
  LayerFlow flow = DetachedLeaves(BroughtTo(entry, ParametersDevice(layers)));
  watch.Ignore(flow.values);
  for (const auto& each : flow.skips) watch.Ignore(each.second);
  at::Tensor values = std::exchange(flow.values, {});
  const std::vector<std::vector<std::string>> last =
      LastPops(LinksByLayer(layers));
  for (size_t i = 0; i < layers.size(); ++i) {
    watch.SetMaker(static_cast<int>(i));
    TANDEM_ASSIGN_OR_RETURN(
        values, CatchTorchOr(
                    [&] {
                      const at::Tensor input_of = std::move(values);
                      return RunLayer(layers[i], input_of, flow.skips);
                    },
                    absl::StrCat("profile of layer ", layers[i].name)));
    for (const std::string& skip : last[i]) flow.skips.erase(skip);
  }
  const auto graph = values.grad_fn();
  values.reset();
  // Parameters' copies are no microbatch's.
  for (const auto& each : NamedParameters(layers)) {
    watch.Ignore(KeptLowPrecisionCopy(each.second));
  }
  const std::vector<int64_t> kept =
      watch.AliveBytes(static_cast<int>(layers.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    profile.layers[i].activation_bytes = kept[i];
  }
  return absl::OkStatus();
}

}  // namespace tandem
