#include "core/launch/open_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/store/server.h"
#include "core/store/shared_store.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

absl::StatusOr<StorePtr> OpenTcpStore(const Launch& launch,
                                      milliseconds timeout) {
  const Rendezvous& where = launch.rendezvous;
  if (where.served_by_launcher || launch.rank != 0) {
    const StoreServer server = where.served_by_launcher
                                   ? StoreServer::kLauncher
                                   : StoreServer::kRankZero;
    return ConnectTcpStore(where.host, where.port, timeout, server);
  }
  if (where.port == 0) {  // which would let the kernel choose
    return absl::InvalidArgumentError(
        "a port is between 1 and 65535, but 0 was given");
  }
  if (launch.nnodes > 1) {
    TANDEM_RETURN_IF_ERROR(CheckOthersCanReach(where.host));
  }
  TANDEM_ASSIGN_OR_RETURN(HostedStore served,
                          ServeTcpStore(where.host, where.port, timeout));
  return served.store;
}

}  // namespace

absl::StatusOr<StorePtr> OpenStore(const Launch& launch, milliseconds timeout) {
  const Rendezvous& where = launch.rendezvous;
  switch (where.kind) {
    case Rendezvous::Kind::kTcp: {
      TANDEM_ASSIGN_OR_RETURN(StorePtr client, OpenTcpStore(launch, timeout));
      StorePtr shared = c10::make_intrusive<SharedStore>(std::move(client));
      return WithPrefix(std::move(shared), where.key_prefix);
    }
    case Rendezvous::Kind::kFile:
      return OpenFileStore(where.path, launch.rank, launch.world_size,
                           where.key_prefix, timeout);
    case Rendezvous::Kind::kNone:
      break;
  }
  if (launch.world_size != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        launch.world_size,
        " ranks have no place to meet: give --master_addr and --master_port, "
        "or --dist_url"));
  }
  return NewHashStore(timeout);
}

}  // namespace tandem
