// For tests of DistributedDataParallel: ranks on each type of device and on
// either backend, and a module beside the wrapped one, without
// DistributedDataParallel, that says what the gradients should be.

#ifndef TANDEM_TESTS_PARALLEL_DDP_FIXTURE_H_
#define TANDEM_TESTS_PARALLEL_DDP_FIXTURE_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "parallel/ddp/distributed_data_parallel.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// The value is the backend.
class DdpTest : public DeviceTypesAnd<std::string> {
 protected:
  // Fails the test when a rank fails.
  void OnRanks(int n, const std::function<absl::Status(Communicator&)>& body);
};

// TestBackend(), if it is told, else both of the host's.
std::vector<std::string> DdpBackends();

#define TANDEM_ON_DEVICES_AND_BACKENDS(Suite) \
  TANDEM_ON_DEVICE_TYPES_AND(Suite, testing::ValuesIn(DdpBackends()))

// A module on the calling rank's first device.
template <typename M>
std::shared_ptr<M> NewModule() {
  auto module = std::make_shared<M>();
  module->to(TestDevice());
  return module;
}

// Two linear layers without bias, 4 x 4, either of which may go unused.
struct TwoLinear : torch::nn::Module {
  TwoLinear();
  at::Tensor forward(at::Tensor x, bool use_a, bool use_b);

  torch::nn::Linear a, b;
};

std::vector<std::string> NamesIn(const FlatBufferList& buffers);
std::vector<std::string> NamesIn(const NamedTensors& tensors);

// All floating-point parameters get the values of the formula, by name.
void FillModule(torch::nn::Module& module);

// [2, 4], another on each rank and at each step.
at::Tensor ExampleInput(int step, const Communicator& world);

// Expects of every gradient of `module` that it is the mean over the ranks of
// those of `alone`, where a rank without one counts as zero; and that there is
// none where no rank has one. Collective.
absl::Status ExpectMeanGradients(const torch::nn::Module& module,
                                 const torch::nn::Module& alone,
                                 Communicator& world);

// Two modules with the same values, the first of them wrapped.
template <typename M>
struct Twins {
  std::shared_ptr<M> module;
  std::shared_ptr<M> alone;
  std::unique_ptr<DistributedDataParallel<std::shared_ptr<M>>> ddp;
};

template <typename M>
absl::StatusOr<Twins<M>> MakeTwins(
    Communicator& world, const DistributedDataParallelOptions& options = {}) {
  Twins<M> twins;
  twins.module = NewModule<M>();
  twins.alone = NewModule<M>();
  FillModule(*twins.module);
  FillModule(*twins.alone);
  TANDEM_ASSIGN_OR_RETURN(
      twins.ddp, MakeDistributedDataParallel(twins.module, world, options));
  return twins;
}

// Forward and backward of the sum of the outputs, on both.
template <typename M, typename... Args>
absl::Status BackwardBoth(Twins<M>& twins, const Args&... args) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor outputs,
                          twins.ddp->Forward(args...));
  TANDEM_RETURN_IF_ERROR(twins.ddp->Backward(outputs.sum()));
  twins.alone->forward(args...).sum().backward();
  return absl::OkStatus();
}

template <typename M>
absl::Status ExpectMeanGradients(const Twins<M>& twins, Communicator& world) {
  return ExpectMeanGradients(*twins.module, *twins.alone, world);
}

template <typename M>
void ZeroBoth(Twins<M>& twins) {
  twins.ddp->ZeroGrad();
  twins.alone->zero_grad();
}

// The end of a step: both have gradients as they should, and then none.
template <typename M>
absl::Status ExpectMeanAndZero(Twins<M>& twins, Communicator& world) {
  TANDEM_RETURN_IF_ERROR(ExpectMeanGradients(twins, world));
  ZeroBoth(twins);
  return absl::OkStatus();
}

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DDP_FIXTURE_H_
