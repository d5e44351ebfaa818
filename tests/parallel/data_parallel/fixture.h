// For tests of DataParallel: one to four devices of each type, modules, and the
// same module without the wrapper, which says what is right.

#ifndef TANDEM_TESTS_PARALLEL_DATA_PARALLEL_FIXTURE_H_
#define TANDEM_TESTS_PARALLEL_DATA_PARALLEL_FIXTURE_H_

#include <ATen/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/device_types.h"
#include "gtest/gtest.h"
#include "parallel/data_parallel.h"

namespace tandem {

// The value is the number of devices.
class DataParallelTest : public DeviceTypesAnd<int> {
 protected:
  std::vector<c10::Device> devices() const {
    return DevicesToTest(std::get<0>(GetParam()), value());
  }
  bool is_alone() const { return value() == 1; }
  DataParallelOptions options() const { return {devices()}; }
};

#define TANDEM_ON_ONE_TO_FOUR(Suite) \
  TANDEM_ON_DEVICE_TYPES_AND(Suite, testing::Values(1, 2, 3, 4))
#define TANDEM_ON_SEVERAL(Suite) \
  TANDEM_ON_DEVICE_TYPES_AND(Suite, testing::Values(2, 3, 4))

// [n, 5] -> [n, 3], in float64. `in` is used twice: its gradients are several.
struct TwiceNet : torch::nn::Cloneable<TwiceNet> {
  TwiceNet() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  torch::nn::Linear in{nullptr}, out{nullptr};
  at::Tensor scale;
};

// [n, 4] -> [n, 4], in float64, with BatchNorm's running statistics.
struct NormNet : torch::nn::Cloneable<NormNet> {
  NormNet() { reset(); }
  void reset() override;
  at::Tensor forward(const at::Tensor& x);
  torch::nn::Linear in{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

// Gives parameters and buffers of floating point values by their names.
void FillModule(torch::nn::Module& module);

// A filled module on the device; two calls give the same.
template <typename Net>
std::shared_ptr<Net> NewNet(c10::Device device) {
  auto net = std::make_shared<Net>();
  net->to(at::kDouble);
  FillModule(*net);
  net->to(device);
  return net;
}

// [n, width] in float64, another for each seed, on the device.
at::Tensor InputOf(int64_t n, int64_t width, int seed, c10::Device device);

// Within 1e-12, of float64 and numbers about 1: sums in another order.
void ExpectClose(const at::Tensor& found, const at::Tensor& expected,
                 const std::string& what);
void ExpectSameBits(const at::Tensor& found, const at::Tensor& expected,
                    const std::string& what);

// Parameters, buffers and gradients are close, or have the same bits.
void ExpectModule(const torch::nn::Module& found,
                  const torch::nn::Module& expected, bool same_bits,
                  const std::string& when);

// The value, or an end of the test program.
template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}

template <typename Module>
std::unique_ptr<DataParallel<Module>> Wrapped(
    const Module& module, const std::vector<c10::Device>& devices) {
  return ValueOf(MakeDataParallel(module, {devices}));
}

// A wrapped module and the same without the wrapper.
template <typename Net>
struct Pair {
  using Pointer = std::shared_ptr<Net>;
  explicit Pair(const std::vector<c10::Device>& devices)
      : net(NewNet<Net>(devices[0])),
        alone(NewNet<Net>(devices[0])),
        parallel(Wrapped(net, devices)) {}

  Pointer net, alone;
  std::unique_ptr<DataParallel<Pointer>> parallel;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_DATA_PARALLEL_FIXTURE_H_
