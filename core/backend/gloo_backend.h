// Gloo backend: serves CPU tensors over TCP. The one file that knows its types
// is gloo_backend.cc.

#ifndef TANDEM_CORE_BACKEND_GLOO_BACKEND_H_
#define TANDEM_CORE_BACKEND_GLOO_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend/communicator_options.h"

namespace tandem {

// InvalidArgument where what is to be bound is loopback: for ranks of several
// hosts, which would wait for each other to their timeouts.
absl::Status CheckLeavesHost(const CommunicatorOptions& options);

// Connects every pair of ranks. Binds what `options.interface` says, and what
// its comment says when it is empty.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> MakeGlooBackend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const CommunicatorOptions& options);

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_GLOO_BACKEND_H_
