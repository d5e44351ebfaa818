#include "core/backend/gloo_backend.h"

#include <ATen/ops/empty.h>
#include <glog/logging.h>
#include <net/if.h>

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
#include "core/backend/breakable_waits.h"
#include "core/backend/breakable_works.h"
#include "core/backend/issue_mutex.h"
#include "core/backend/listening_sockets.h"
#include "core/backend/pair_proof.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using c10d::ProcessGroupGloo;

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// LibTorch's own ignores abort(): works would run on to their timeouts, and the
// destructor waits for them.
class GlooBackend : public ProcessGroupGloo {
 public:
  GlooBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
              c10::intrusive_ptr<Options> options)
      : ProcessGroupGloo(store, rank, size, std::move(options)),
        works_([this](int peer) { Probe(peer); }, [this] { LiveOn(); }) {}

  // New connections would not be those that were proved (pair_proof.h).
  bool supportsReconfigure() const override { return false; }

  // When a receive times out, Gloo gives an exception to every pair of the
  // context, and what uses one of them, then or later, fails. (What is received
  // after Context::closeConnections waits for its timeout.)
  void abort() override {
    works_.Break("the connections of the group were broken off");
    for (size_t c = 0; c < contexts_.size(); ++c) {
      for (int r = 0; r < getSize(); ++r) {
        if (r != getRank()) FailToReceive(r, kTag + static_cast<int>(c));
      }
    }
  }

  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& options) override {
    return works_.OfCollective(ProcessGroupGloo::broadcast(tensors, options));
  }
  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& options) override {
    return works_.OfCollective(ProcessGroupGloo::allreduce(tensors, options));
  }
  WorkPtr reduce(Tensors& tensors,
                 const c10d::ReduceOptions& options) override {
    return works_.OfCollective(ProcessGroupGloo::reduce(tensors, options));
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return works_.OfCollective(
        ProcessGroupGloo::allgather(outputs, inputs, options));
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& options) override {
    return works_.OfCollective(
        ProcessGroupGloo::all_gather_single(output, input, options));
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return works_.OfCollective(
        ProcessGroupGloo::gather(outputs, inputs, options));
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override {
    return works_.OfCollective(
        ProcessGroupGloo::scatter(outputs, inputs, options));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return works_.OfCollective(ProcessGroupGloo::barrier(options));
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return works_.OfMessage(ProcessGroupGloo::send(tensors, to, tag), to);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return works_.OfMessage(ProcessGroupGloo::recv(tensors, from, tag), from);
  }

 private:
  // Nobody sends with these. The tag chooses the context, by its remainder.
  static constexpr int kTag = 1 << 30;

  WorkPtr StartToReceive(int from, int tag) {
    Tensors tensors = {at::empty({1}, at::kByte)};
    return ProcessGroupGloo::recv(tensors, from, tag);
  }

  void FailToReceive(int from, int tag) {
    // A pair that is broken already throws at once; the next may not be.
    CatchTorch([&] {
      StartToReceive(from, tag)->wait(std::chrono::milliseconds(1));
    }).IgnoreError();
  }

  // Nobody waits for what this starts: a few bytes that Gloo keeps.
  void Probe(int peer) {
    absl::MutexLock lock(&IssueMutex());
    for (size_t c = 0; c < contexts_.size(); ++c) {
      for (int r = 0; r < getSize(); ++r) {
        const bool asked = peer == BreakableWaits::kAll || peer == r;
        if (r == getRank() || !asked) continue;
        StartToReceive(r, kTag + static_cast<int>(c));
      }
    }
  }

  // To the end of the process, which comes before that of the collective.
  void LiveOn() {
    self_ =
        c10::intrusive_ptr<GlooBackend>::unsafe_reclaim_from_nonowning(this);
  }

  c10::intrusive_ptr<GlooBackend> self_;  // null, as a rule
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

std::shared_ptr<::gloo::transport::Device> MakeDevice(
    const std::string& place) {
  if (if_nametoindex(place.c_str()) != 0) {
    return ProcessGroupGloo::createDeviceForInterface(place);
  }
  return ProcessGroupGloo::createDeviceForHostname(place);
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeGlooBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> places,
                          PlacesToBind(options));
  auto gloo = ProcessGroupGloo::Options::create(options.timeout);
  std::set<int> listening;
  for (const std::string& place : places) {
    TANDEM_RETURN_IF_ERROR(CatchTorch(
        [&] {
          listening.merge(DescriptorsOf(
              [&] { gloo->devices.push_back(MakeDevice(place)); }));
        },
        absl::StrCat("cannot bind the network interface or address \"", place,
                     "\"")));
  }
  TANDEM_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Backend> backend,
                          CatchTorchOr(
                              [&]() -> c10::intrusive_ptr<c10d::Backend> {
                                return c10::make_intrusive<GlooBackend>(
                                    store, rank, size, gloo);
                              },
                              "connect the ranks"));
  // All peers are connected. Who comes now is none, and Gloo would keep the
  // connection for good, and end the process when there are too many.
  for (const int fd : listening) {
    TANDEM_RETURN_IF_ERROR(StopAccepting(fd));
  }
  TANDEM_RETURN_IF_ERROR(
      CatchTorch([&] { return ProvePairs(*backend, *store); },
                 "prove to each other who the ranks are"));
  return backend;
}

}  // namespace tandem
