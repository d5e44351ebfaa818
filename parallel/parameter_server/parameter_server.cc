#include "parallel/parameter_server/parameter_server.h"

#include <ATen/ops/zeros.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/variant.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/comm/group_agreement.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/update_options.h"
#include "parallel/parameter_server/strategies.h"

namespace tandem {
namespace {

// What ranks have to agree on before they talk to each other.
absl::Status CompareOptions(const ParameterServerOptions& options,
                            Communicator& world) {
  return AgreeInGroup({{"servers", absl::StrCat(options.servers)},
                       {"max_staleness", absl::StrCat(options.max_staleness)}},
                      "parameter servers", world);
}

// The layout that all workers have; `mine` is empty on servers.
absl::StatusOr<ServedLayout> LayoutOfAll(const std::string& mine, int servers,
                                         Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world.AllGatherString(mine, [] { return "the workers' tensors"; }));
  const std::string& first = all[static_cast<size_t>(servers)];
  for (size_t rank = static_cast<size_t>(servers); rank < all.size(); ++rank) {
    if (all[rank] == first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " trains other tensors than rank ", servers,
        ": workers need the same model, in the same memory format"));
  }
  TANDEM_ASSIGN_OR_RETURN(ServedLayout layout, ServedLayout::Decode(first));
  if (!layout.trained.empty()) return layout;
  return absl::InvalidArgumentError(
      "the model has no parameter that requires a gradient");
}

absl::Status ScaledError() {
  return absl::InvalidArgumentError(
      "parameter servers: with grad_scaler all ranks skip a step of which one "
      "gradient is not finite, but servers take what each worker pushes: train "
      "in bf16, which needs no scale, or with another strategy");
}

absl::Status MatricesError() {
  return absl::InvalidArgumentError(
      "parameter servers: slices of the parameters, which servers own, cut "
      "matrices, but Muon steps whole ones: take another optimizer, or another "
      "strategy");
}

bool StepsMatrices(const UpdateOptions& options) {
  return absl::c_any_of(AllOptimizers(options), [](const auto& each) {
    return absl::holds_alternative<MuonOptions>(each);
  });
}

std::string NameOfServer(int server, const Communicator& world) {
  return absl::StrCat("server ", server, " (rank ", world.NameOf(server),
                      " of the job)");
}

// The two's own group, whose failures are theirs alone. In the order of
// servers, then of workers, on both sides. A worker that waits for a server
// that has frozen says nothing to the others: these are more patient, to hear
// from it which one that is.
absl::StatusOr<std::unique_ptr<Communicator>> Join(int server, int rank,
                                                   Communicator& world) {
  SubgroupOptions options;
  options.has_own_fate = true;
  options.patience = world.rank() == server ? 2 : 1;
  return world.Subgroup(
      {server, rank},
      absl::StrCat("server ", server, " and rank ", world.NameOf(rank)),
      options);
}

// The first worker's `tensors`, slice by slice: to other workers' `tensors`,
// and to the server of each slice, whose own comes back.
absl::StatusOr<at::Tensor> ShareInitial(const std::vector<at::Tensor>& tensors,
                                        const std::vector<Slice>& slices,
                                        int servers, Communicator& world) {
  at::Tensor own;
  for (size_t s = 0; s < slices.size(); ++s) {
    const at::Tensor bytes = at::zeros({slices[s].bytes}, at::kByte);
    if (world.rank() == servers) Pack(tensors, slices[s], bytes);
    TANDEM_RETURN_IF_ERROR(world.Broadcast(bytes, /*root=*/servers,
                                           [] { return "initial values"; }));
    if (world.rank() > servers) Unpack(bytes, slices[s], tensors);
    if (world.rank() == static_cast<int>(s)) own = bytes;
  }
  return own;
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeWorker(
    std::unique_ptr<Strategy> replica, const ParameterServerOptions& options,
    Communicator& world) {
  ReplicaTensors tensors =
      MakeReplicaTensors(*replica, options.optimizer_group);
  TANDEM_ASSIGN_OR_RETURN(
      const ServedLayout layout,
      LayoutOfAll(tensors.layout.Encode(), options.servers, world));
  const ReplicaTensors shared = tensors;
  auto worker = std::make_unique<WorkerStrategy>(
      std::move(replica), std::move(tensors),
      CutIntoSlices(layout.trained, options.servers));
  WorkerClient::Setup setup;
  setup.slices = &worker->slices();
  setup.kept = CutIntoSlices(layout.kept, 1).front();
  TANDEM_RETURN_IF_ERROR(
      ShareInitial(shared.trained, worker->slices(), options.servers, world)
          .status());
  TANDEM_RETURN_IF_ERROR(
      ShareInitial(shared.kept, {setup.kept}, options.servers, world).status());
  TANDEM_RETURN_IF_ERROR(shared.UpdateCopies());
  for (int s = 0; s < options.servers; ++s) {
    TANDEM_ASSIGN_OR_RETURN(auto group, Join(s, world.rank(), world));
    setup.servers.push_back(std::move(group));
    setup.server_names.push_back(NameOfServer(s, world));
  }
  worker->Connect(std::move(setup), /*in_step=*/options.max_staleness == 0);
  return worker;
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeServer(
    const ParameterServerOptions& options, Communicator& world) {
  auto setup = std::make_unique<ServerStrategy::Setup>();
  TANDEM_ASSIGN_OR_RETURN(setup->layout,
                          LayoutOfAll("", options.servers, world));
  setup->slices = CutIntoSlices(setup->layout.trained, options.servers);
  setup->kept = CutIntoSlices(setup->layout.kept, 1).front();
  setup->server = world.rank();
  std::vector<int> servers;
  for (int s = 0; s < options.servers; ++s) servers.push_back(s);
  SubgroupOptions own;
  own.has_own_fate = true;
  TANDEM_ASSIGN_OR_RETURN(setup->servers,
                          world.Subgroup(servers, "parameter servers", own));
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor values,
      ShareInitial({}, setup->slices, options.servers, world));
  TANDEM_ASSIGN_OR_RETURN(
      const at::Tensor kept,
      ShareInitial({}, {setup->kept}, options.servers, world));
  const Slice& slice = setup->slices[static_cast<size_t>(setup->server)];
  TANDEM_ASSIGN_OR_RETURN(auto served,
                          ServedSlice::Create(setup->layout, slice, options));
  served->SetValues(values);
  ParameterServer::Setup serving;
  serving.slice = &slice;
  serving.kept_bytes = setup->server == 0 ? setup->kept.bytes : 0;
  serving.max_staleness = options.max_staleness;
  for (int rank = options.servers; rank < world.size(); ++rank) {
    TANDEM_ASSIGN_OR_RETURN(auto group, Join(world.rank(), rank, world));
    serving.workers.push_back(std::move(group));
  }
  for (int s = 0; s < options.servers; ++s) {
    serving.server_names.push_back(NameOfServer(s, world));
  }
  auto server =
      std::make_unique<ParameterServer>(std::move(serving), std::move(served));
  server->set_kept(kept);
  return std::make_unique<ServerStrategy>(std::move(setup), std::move(server));
}

}  // namespace

absl::Status CheckParameterServerOptions(const ParameterServerOptions& options,
                                         int ranks) {
  if (options.servers < 1 || options.servers >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter servers: ", options.servers, " of ", ranks,
        " ranks are to be servers; at least one must be, and one a worker"));
  }
  if (options.max_staleness < kUnboundedStaleness) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter servers: max_staleness is ", options.max_staleness,
        "; it is a number of steps, 0 for synchronous training, or -1 for no "
        "bound"));
  }
  if (options.clip_norm > 0 &&
      (options.servers > 1 || options.max_staleness != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter servers: the norm of all gradients of a step, which "
        "clip_norm is about, is known to nobody with ",
        options.servers, " servers and a max_staleness of ",
        options.max_staleness, ": take one server and 0, or clip by value"));
  }
  if (StepsMatrices(options)) return MatricesError();
  return options.scales_loss() ? ScaledError() : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Strategy>> MakeParameterServer(
    const MakeReplica& make_replica, const ParameterServerOptions& options,
    Communicator& world) {
  TANDEM_RETURN_IF_ERROR(CheckParameterServerOptions(options, world.size()));
  TANDEM_RETURN_IF_ERROR(CompareOptions(options, world));
  const bool is_server = world.rank() < options.servers;
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<Strategy>> {
    if (is_server) return MakeServer(options, world);
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Strategy> replica,
                            make_replica(world.rank() - options.servers));
    if (replica->loss_scale() != nullptr) return ScaledError();
    return MakeWorker(std::move(replica), options, world);
  };
  absl::StatusOr<std::unique_ptr<Strategy>> strategy =
      CatchTorchOr([&] { return make(); });
  // Others would wait for this rank.
  if (!strategy.ok()) world.Abort(strategy.status());
  return strategy;
}

}  // namespace tandem
