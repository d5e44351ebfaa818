#include "core/backend/backend.h"

#include <ATen/ops/zeros.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/backend/backend_names.h"
#include "core/backend/gloo_backend.h"
#include "core/backend/hierarchical_backend.h"
#include "core/backend/host_works.h"
#include "core/backend/nccl_backend.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/shm/backend.h"
#include "core/shm/completion_notice.h"
#include "core/sim/links/backend.h"
#include "core/sim/nccl/backend.h"
#include "core/store/store.h"

namespace tandem {

namespace {

// A namespace is told by the file that stands for it.
std::string Namespace(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) return "";
  return absl::StrCat(status.st_dev, ":", status.st_ino);
}

// What stands behind the host's name, in which there is no space.
absl::string_view NetworkIdentity(absl::string_view identity) {
  const size_t space = identity.find(' ');
  return space == absl::string_view::npos ? absl::string_view()
                                          : identity.substr(space);
}

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return absl::StrCat(name, " ", boot, " ", Namespace("/proc/self/ns/net"));
}

bool SharesLoopback(absl::string_view one, absl::string_view other) {
  return NetworkIdentity(one) == NetworkIdentity(other);
}

namespace {

using MadeBackend = absl::StatusOr<c10::intrusive_ptr<c10d::Backend>>;

// InvalidArgument for a group over several hosts that Gloo would connect by
// loopback.
absl::Status CheckHosts(const GroupPlace& place,
                        const CommunicatorOptions& options) {
  const std::string& mine = place.hosts[static_cast<size_t>(place.rank)];
  const bool is_near =
      std::all_of(place.hosts.begin(), place.hosts.end(),
                  [&](const auto& each) { return SharesLoopback(each, mine); });
  return is_near ? absl::OkStatus() : CheckLeavesHost(options);
}

MadeBackend MakeShm(const GroupPlace& place,
                    const CommunicatorOptions& options) {
  const HostLayout layout(place.hosts);
  if (layout.host_count() == 1) {
    return ShmBackend::Create(place.store, place.rank, place.size(),
                              options.timeout, options.rank_names);
  }
  TANDEM_RETURN_IF_ERROR(CheckHosts(place, options));
  return HierarchicalBackend::Create(
      place.store, place.rank, layout, options.timeout, options.rank_names,
      [&](const StorePtr& group_store, int group_rank, int group_size) {
        return MakeGlooBackend(group_store, group_rank, group_size, options);
      });
}

MadeBackend MakeGloo(const GroupPlace& place,
                     const CommunicatorOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckHosts(place, options));
  return MakeGlooBackend(place.store, place.rank, place.size(), options);
}

MadeBackend MakeSimNccl(const GroupPlace& place,
                        const CommunicatorOptions& options) {
  sim::NcclOptions nccl;
  nccl.make_wire = [place, options](const StorePtr& store) {
    GroupPlace wire = place;
    wire.store = store;
    return MakeShm(wire, options);
  };
  nccl.name = place.name;
  nccl.rank_names = options.rank_names;
  nccl.job = place.job;
  if (options.device.has_value()) nccl.devices = {*options.device};
  nccl.devices.insert(nccl.devices.end(), options.further_devices.begin(),
                      options.further_devices.end());
  return sim::NcclBackend::Create(place.store, place.rank, place.size(),
                                  std::move(nccl));
}

MadeBackend MakeSimLinks(const GroupPlace& place,
                         const CommunicatorOptions& /*options*/) {
  return c10::make_intrusive<sim::LinksBackend>(place.rank, place.size());
}

// A work that has ended.
class EndedWork : public c10d::Work, public NotifiesCompletion {
 public:
  explicit EndedWork(c10d::OpType type) : Work(/*rank=*/-1, type) {}

  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  void OnCompletion(std::function<void()> callback) override { callback(); }
};

// The host's backend of a rank that rehearses a group alone: collectives give
// what they would if all ranks had this one's tensors. An all-reduce's sum is
// the tensor times their number. There are no messages.
class AloneBackend : public c10d::Backend {
 public:
  // `shares_memory`: whether it stands for ranks of one host.
  AloneBackend(int rank, int size, bool shares_memory)
      : Backend(rank, size), shares_memory_(shares_memory) {}

  const std::string getBackendName() const override {
    return shares_memory_ ? "shm" : "gloo";
  }
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override {
    return shares_memory_;
  }
  at::Tensor allocateTensor(int64_t size, at::TensorOptions options) override {
    return at::zeros({size}, options);
  }

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options) override {
    Reduce(tensors.at(0), options.reduceOp);
    return Ended(c10d::OpType::ALLREDUCE);
  }
  WorkPtr broadcast(Tensors& /*tensors*/,
                    const c10d::BroadcastOptions& /*options*/) override {
    return Ended(c10d::OpType::BROADCAST);
  }
  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options) override {
    Reduce(tensors.at(0), options.reduceOp);
    return Ended(c10d::OpType::REDUCE);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& /*options*/) override {
    for (at::Tensor& each : outputs.at(0)) each.copy_(inputs.at(0));
    return Ended(c10d::OpType::ALLGATHER);
  }
  WorkPtr barrier(const c10d::BarrierOptions& /*options*/) override {
    return Ended(c10d::OpType::BARRIER);
  }

  void abort() override {}
  void shutdown() override {}

 private:
  static WorkPtr Ended(c10d::OpType type) {
    return c10::make_intrusive<EndedWork>(type);
  }

  // In place. What is no sum is of the same the same.
  void Reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
    if (op.op_ == c10d::ReduceOp::SUM) tensor.mul_(getSize());
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
    const auto& premultiplied =
        dynamic_cast<const c10d::PreMulSumSupplement&>(*op.supplement_);
    tensor.mul_(premultiplied.double_factor * getSize());
  }

  const bool shares_memory_;
};

MadeBackend MakeAlone(const GroupPlace& place,
                      const CommunicatorOptions& options) {
  TANDEM_RETURN_IF_ERROR(sim::CheckImagined());
  return c10::make_intrusive<AloneBackend>(place.rank, place.size(),
                                           options.all_local);
}

// A group of host tensors alone has none.
MadeBackend MakeNccl(const GroupPlace& place,
                     const CommunicatorOptions& options) {
  NcclOptions nccl;
  // After what tandem itself waits for.
  nccl.watchdog_timeout = options.timeout + std::chrono::minutes(1);
  nccl.name = place.name;
  nccl.further_devices = options.further_devices;
  nccl.rank_names.assign(options.rank_names.begin(), options.rank_names.end());
  return MakeNcclBackend(place.store, place.rank, place.size(), *options.device,
                         nccl);
}

using BackendType = c10d::ProcessGroup::BackendType;

struct BackendMaker {
  const char* name;
  BackendType type;
  MadeBackend (*make)(const GroupPlace& place,
                      const CommunicatorOptions& options);
};

constexpr BackendMaker kBackendMakers[] = {
    {"shm", BackendType::CUSTOM, &MakeShm},
    {"gloo", BackendType::GLOO, &MakeGloo},
    {"alone", BackendType::CUSTOM, &MakeAlone},
    // A group has one backend of each type.
    {"sim_nccl", BackendType::NCCL, &MakeSimNccl},
    {"sim_links", BackendType::NCCL, &MakeSimLinks},
    {"nccl", BackendType::NCCL, &MakeNccl},
};

const BackendMaker& FindBackend(const std::string& name) {
  const auto* const known =
      std::find_if(std::begin(kBackendMakers), std::end(kBackendMakers),
                   [&](const auto& each) { return each.name == name; });
  CHECK(known != std::end(kBackendMakers)) << name;
  return *known;
}

absl::Status AddBackend(const std::string& name, c10::DeviceType device,
                        const GroupPlace& place,
                        const CommunicatorOptions& options,
                        c10d::ProcessGroup* group) {
  const BackendMaker& known = FindBackend(name);
  TANDEM_ASSIGN_OR_RETURN(auto backend, known.make(place, options));
  group->setBackend(device, known.type, backend);
  if (device == c10::DeviceType::CPU) group->setDefaultBackend(known.type);
  return absl::OkStatus();
}

// What an abort takes that waits for nobody.
constexpr std::chrono::seconds kAbortTime(1);

void AbortHost(c10d::Backend& backend, const std::string& reason) {
  absl::MutexLock lock(&IssueMutex());
  if (auto* shm = dynamic_cast<ShmBackend*>(&backend)) {
    shm->Abort(reason);
  } else if (auto* hosts = dynamic_cast<HierarchicalBackend*>(&backend)) {
    hosts->Abort(reason);
  } else {
    backend.abort();
  }
}

// The backends of devices, without the host's.
std::vector<c10::intrusive_ptr<c10d::Backend>> OfDevices(
    c10d::ProcessGroup& group) {
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends;
  for (const c10::Device& device : group.getDeviceTypes()) {
    if (!device.is_cpu()) backends.push_back(group.getBackend(device.type()));
  }
  return backends;
}

// On a thread that is left behind if need be: NCCL's may wait without end, for
// a kernel that waits for a peer that is gone.
void AbortOfDevice(const c10::intrusive_ptr<c10d::Backend>& backend,
                   const std::string& reason) {
  if (auto* nccl = dynamic_cast<sim::NcclBackend*>(backend.get())) {
    return nccl->Abort(reason);
  }
  CallWithin<bool>(kAbortTime, [backend] {
    backend->abort();
    return true;
  }).IgnoreError();
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> MakeProcessGroup(
    const GroupPlace& place, const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const BackendNames names,
                          ParseBackend(options.backend));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(place.store, place.rank,
                                                       place.size());
  TANDEM_RETURN_IF_ERROR(AddBackend(names.host, c10::DeviceType::CPU, place,
                                    options, group.get()));
  if (names.device == "nccl") TANDEM_RETURN_IF_ERROR(CheckNcclIsBuilt());
  if (names.device == "sim_nccl") TANDEM_RETURN_IF_ERROR(sim::CheckStreams());
  if (names.device == "sim_links") {
    TANDEM_RETURN_IF_ERROR(sim::CheckImagined());
  }
  const bool has_device = !names.device.empty() && options.device.has_value() &&
                          options.device->type() == names.device_type;
  if (has_device) {
    TANDEM_RETURN_IF_ERROR(AddBackend(names.device, names.device_type, place,
                                      options, group.get()));
  }
  return group;
}

// The host's first, which tells the other ranks.
void AbortBackends(c10d::ProcessGroup& group, const std::string& reason) {
  CatchTorch([&] {
    AbortHost(*group.getBackend(c10::DeviceType::CPU), reason);
  }).IgnoreError();
  for (const auto& backend : OfDevices(group)) AbortOfDevice(backend, reason);
}

void CloseBackends(c10d::ProcessGroup& group,
                   std::chrono::milliseconds timeout) {
  for (const auto& backend : OfDevices(group)) {
    const absl::Status closed = CallWithin<bool>(timeout, [backend] {
                                  backend->shutdown();
                                  return true;
                                }).status();
    if (!closed.ok()) AbortOfDevice(backend, std::string(closed.message()));
  }
}

absl::Status CheckPeers(c10d::ProcessGroup& group) {
  const auto host = group.getBackend(c10::DeviceType::CPU);
  const auto* const shm = dynamic_cast<ShmBackend*>(host.get());
  return shm == nullptr ? absl::OkStatus() : shm->CheckPeers();
}

}  // namespace tandem
