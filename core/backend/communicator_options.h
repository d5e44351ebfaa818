// Communicator options: backend, timeout and names of a group of ranks.

#ifndef TANDEM_CORE_BACKEND_COMMUNICATOR_OPTIONS_H_
#define TANDEM_CORE_BACKEND_COMMUNICATOR_OPTIONS_H_

#include <c10/core/Device.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/agreement/agreement.h"

namespace tandem {

struct CommunicatorOptions {
  // How long any collective waits for the other ranks (PyTorch's default).
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // When a rank has waited so long in a collective, a warning names the ranks
  // that are late. 0: no warnings.
  std::chrono::milliseconds straggler_warning{0};
  // Compares across ranks, before each collective, its operation, shape, dtype,
  // kind of device and root; a disagreement is InvalidArgument on every rank
  // and names what the two are for. To find errors: ranks then wait for each
  // other at each start, so nothing overlaps.
  bool check_collectives = false;
  // What must be the same on every rank, by the names that messages call it by:
  // a program's settings. Compared when ranks meet, before connections are
  // made; a difference is InvalidArgument on every rank and names the value,
  // the ranks and what each has. Subgroups do not compare again.
  NamedValues settings;
  // What serves CPU tensors, and those of devices whose memory the host can
  // reach: "shm", shared memory between the ranks of a host and Gloo between
  // hosts; or "gloo", sockets between all. What serves a device's: "sim_nccl",
  // "nccl" (with shm beside it), or both by name, "cpu:gloo,sim:sim_nccl"
  // (core/backend/backend_names.h).
  std::string backend = "shm";
  // The device whose tensors the device's backend is given; its communicator is
  // made when the group is, by all ranks. None: the group has tensors of the
  // host alone.
  std::optional<c10::Device> device;
  // Tensors of a device that neither backend can reach go by way of copies in
  // the host's memory: right, and slow. For ranks that share a GPU, which NCCL
  // refuses. Else they are refused.
  bool stages_on_host = false;
  // Further devices of this rank, with a communicator each, for modules that
  // lie on several; made after that of `device`, in this order. Each rank has
  // as many.
  std::vector<c10::Device> further_devices;
  // What tells hosts apart: ranks that name the same one share memory. Empty:
  // HostIdentity(). For tests, which have one host alone.
  std::string host;
  // The network interface ("eth0") or local address that Gloo binds. Empty:
  // loopback when every rank is on this host; else what GLOO_SOCKET_IFNAME
  // names, else the address from which this host reaches `master_host`.
  std::string interface;
  // Is every rank on this host?
  bool all_local = true;
  // Where rank 0 or the launcher is; needed unless `all_local`.
  std::string master_host;
  // What messages call the ranks of the group, by rank. Empty: as they count.
  // Communicator::Subgroup fills it with the numbers of the whole job.
  std::vector<int> rank_names;
};

struct SubgroupOptions {
  // Its failures are its own: what breaks elsewhere does not end its waits, and
  // what breaks in it is told to nobody else. For ranks whose loss the others
  // can do without. Else it shares the fate of the ranks that it is of, if they
  // share one (Communicator::ForLaunch).
  bool has_own_fate = false;
  // This rank's timeout is so many times that of the group which it is a part
  // of.
  int patience = 1;
  // CommunicatorOptions::device; none: the group has tensors of the host alone.
  std::optional<c10::Device> device;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_COMMUNICATOR_OPTIONS_H_
