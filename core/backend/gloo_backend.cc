#include "core/backend/gloo_backend.h"

#include <ATen/ops/empty.h>
#include <glog/logging.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "core/backend/breakable_works.h"
#include "core/backend/gloo_connections.h"
#include "core/backend/host_works.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using c10d::ProcessGroupGloo;

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Nobody sends with these. The tag chooses the context, by its remainder.
constexpr int kNobodysTag = 1 << 30;

WorkPtr StartToReceive(ProcessGroupGloo& gloo, int from, int tag) {
  Tensors tensors = {at::empty({1}, at::kByte)};
  return gloo.ProcessGroupGloo::recv(tensors, from, tag);
}

void FailToReceive(ProcessGroupGloo& gloo, int from, int tag) {
  // A pair that is broken already throws at once; the next may not be.
  CatchTorch([&] {
    StartToReceive(gloo, from, tag)->wait(std::chrono::milliseconds(1));
  }).IgnoreError();
}

// LibTorch's own ignores abort(): works would run on to their timeouts, and the
// destructor waits for them.
class GlooBackend : public ProcessGroupGloo {
 public:
  // `epolls`: that tell of its connections.
  GlooBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
              c10::intrusive_ptr<Options> options, std::set<int> epolls)
      : ProcessGroupGloo(store, rank, size, std::move(options)),
        bytes_(std::move(epolls)),
        works_([this](int peer) { Probe(peer); },
               [this] { return bytes_.HaveMoved(); }, [this] { LiveOn(); }) {}

  // New connections would not be those that were proved (ProvePairs).
  bool supportsReconfigure() const override { return false; }

  // When a receive times out, Gloo gives an exception to every pair of the
  // context, and what uses one of them, then or later, fails. (What is received
  // after Context::closeConnections waits for its timeout.)
  void abort() override {
    works_.Break("the connections of the group were broken off");
    for (size_t c = 0; c < contexts_.size(); ++c) {
      for (int r = 0; r < getSize(); ++r) {
        if (r == getRank()) continue;
        FailToReceive(*this, r, kNobodysTag + static_cast<int>(c));
      }
    }
  }

  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options) override {
    return Breakable(ProcessGroupGloo::broadcast(tensors, options));
  }
  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options) override {
    return Breakable(ProcessGroupGloo::allreduce(tensors, options));
  }
  WorkPtr allreduce_sparse(Tensors& tensors,
                           const c10d::AllreduceOptions& options) override {
    return Breakable(ProcessGroupGloo::allreduce_sparse(tensors, options));
  }
  WorkPtr allreduce_coalesced(
      Tensors& tensors,
      const c10d::AllreduceCoalescedOptions& options) override {
    return Breakable(ProcessGroupGloo::allreduce_coalesced(tensors, options));
  }
  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options) override {
    return Breakable(ProcessGroupGloo::reduce(tensors, options));
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return Breakable(
        ProcessGroupGloo::reduce_scatter(outputs, inputs, options));
  }
  WorkPtr reduce_scatter_single(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options) override {
    return Breakable(
        ProcessGroupGloo::reduce_scatter_single(output, input, options));
  }
  WorkPtr reduce_scatter_single_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::ReduceScatterOptions& options) override {
    return Breakable(ProcessGroupGloo::reduce_scatter_single_coalesced(
        outputs, inputs, options));
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return Breakable(ProcessGroupGloo::allgather(outputs, inputs, options));
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return Breakable(
        ProcessGroupGloo::allgather_coalesced(outputs, inputs, options));
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& options) override {
    return Breakable(
        ProcessGroupGloo::all_gather_single(output, input, options));
  }
  WorkPtr all_gather_single_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override {
    return Breakable(ProcessGroupGloo::all_gather_single_coalesced(
        outputs, inputs, options));
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return Breakable(ProcessGroupGloo::gather(outputs, inputs, options));
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override {
    return Breakable(ProcessGroupGloo::scatter(outputs, inputs, options));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    return Breakable(ProcessGroupGloo::alltoall(outputs, inputs, options));
  }
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override {
    return Breakable(ProcessGroupGloo::all_to_all_single(
        output, input, output_splits, input_splits, options));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return Breakable(ProcessGroupGloo::barrier(options));
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return works_.OfMessage(ProcessGroupGloo::send(tensors, to, tag), to);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return works_.OfMessage(ProcessGroupGloo::recv(tensors, from, tag), from);
  }

 private:
  // LibTorch makes some collectives (a sum of several tensors, say) of the
  // methods above; their works wait for the works of those.
  WorkPtr Breakable(WorkPtr work) {
    const bool is_collective = dynamic_cast<AsyncWork*>(work.get()) != nullptr;
    return is_collective ? works_.OfCollective(std::move(work)) : work;
  }

  // Nobody waits for what this starts: a few bytes that Gloo keeps.
  void Probe(int peer) {
    absl::MutexLock lock(&IssueMutex());
    for (size_t c = 0; c < contexts_.size(); ++c) {
      for (int r = 0; r < getSize(); ++r) {
        const bool asked = peer == BreakableWaits::kAll || peer == r;
        if (r == getRank() || !asked) continue;
        StartToReceive(*this, r, kNobodysTag + static_cast<int>(c));
      }
    }
  }

  // To the end of the process, which comes before that of the collective.
  void LiveOn() {
    self_ =
        c10::intrusive_ptr<GlooBackend>::unsafe_reclaim_from_nonowning(this);
  }

  c10::intrusive_ptr<GlooBackend> self_;  // null, as a rule
  MovingBytes bytes_;                     // of the thread of works_
  BreakableWorks works_;
};

bool IsLoopback(const std::string& host) {
  return absl::StartsWith(host, "127.") || host == "::1" || host == "localhost";
}

// Interfaces and addresses to bind, in order of precedence.
absl::StatusOr<std::vector<std::string>> PlacesToBind(
    const CommunicatorOptions& options) {
  if (!options.interface.empty()) return {{options.interface}};
  if (options.all_local) return {{"127.0.0.1"}};
  // PyTorch's name for it: one interface, or several with commas between.
  const char* names = std::getenv("GLOO_SOCKET_IFNAME");
  if (names != nullptr && *names != '\0') {
    return std::vector<std::string>(absl::StrSplit(names, ','));
  }
  if (options.master_host.empty()) {
    return absl::InvalidArgumentError(
        "ranks on several hosts need a network interface to bind, or the "
        "master's address to find it by, but neither is given: set "
        "GLOO_SOCKET_IFNAME, for example to eth0");
  }
  TANDEM_ASSIGN_OR_RETURN(std::string address,
                          LocalAddressTowards(options.master_host));
  // Debian gives a host's own name the address 127.0.1.1.
  LOG_IF(WARNING, IsLoopback(address) && !IsLoopback(options.master_host))
      << "the master address " << options.master_host << " is " << address
      << " on this host, which other hosts cannot reach; use an address of "
      << "the network instead";
  return {{address}};
}

// Whether an interface, or an address, is one that no other host reaches.
bool StaysOnHost(const std::string& place) {
  ifreq request = {};
  const OwnedFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (if_nametoindex(place.c_str()) == 0 || place.size() >= IFNAMSIZ || !any) {
    return IsLoopback(place);
  }
  place.copy(request.ifr_name, IFNAMSIZ - 1);
  return ioctl(any.get(), SIOCGIFFLAGS, &request) == 0 &&
         (request.ifr_flags & IFF_LOOPBACK) != 0;
}

std::shared_ptr<::gloo::transport::Device> MakeDevice(
    const std::string& place) {
  if (if_nametoindex(place.c_str()) != 0) {
    return ProcessGroupGloo::createDeviceForInterface(place);
  }
  return ProcessGroupGloo::createDeviceForHostname(place);
}

}  // namespace

absl::Status CheckLeavesHost(const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> places,
                          PlacesToBind(options));
  for (const std::string& place : places) {
    if (!StaysOnHost(place)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the network interface or address \"", place,
        "\" is loopback, and the ranks are on several hosts: give an interface "
        "by which the hosts reach each other (--interface, "
        "GLOO_SOCKET_IFNAME), or none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeGlooBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> places,
                          PlacesToBind(options));
  auto gloo = ProcessGroupGloo::Options::create(options.timeout);
  Acceptors acceptors;
  for (const std::string& place : places) {
    Acceptors made;
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] {
          made =
              NewAcceptors([&] { gloo->devices.push_back(MakeDevice(place)); });
        },
        absl::StrCat("cannot bind the network interface or address \"", place,
                     "\"")));
    if (made.sockets.empty()) {
      return absl::InternalError(
          "cannot tell at which port Gloo listens, which is to accept nobody "
          "but the group's ranks");
    }
    acceptors.sockets.merge(made.sockets);
    acceptors.epolls.merge(made.epolls);
  }
  TANDEM_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Backend> backend,
                          CatchTorchOr(
                              [&]() -> c10::intrusive_ptr<c10d::Backend> {
                                return c10::make_intrusive<GlooBackend>(
                                    store, rank, size, gloo, acceptors.epolls);
                              },
                              "connect the ranks"));
  // All peers are connected. Whoever comes now is no peer, and Gloo would keep
  // the connection for good, and end the process when there are too many.
  for (const int fd : acceptors.sockets) {
    TANDEM_RETURN_IF_ERROR(StopAccepting(fd));
  }
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return ProvePairs(*backend, *store); },
                 "prove to each other who the ranks are"));
  return backend;
}

}  // namespace tandem
