// For tests of the backend of shared memory: threads as ranks, and tensors of
// which the results are known.

#ifndef TANDEM_TESTS_CORE_SHM_RANKS_H_
#define TANDEM_TESTS_CORE_SHM_RANKS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/comm/communicator.h"
#include "core/shm/backend.h"
#include "core/testing/thread_ranks.h"

namespace tandem {

using Tensors = std::vector<at::Tensor>;

// The last two go through several slots, and are in the background.
inline constexpr int64_t kSizes[] = {0, 1, 13, 997, 5003, 40009, 300007};

// Runs `fn` on `n` ranks, each with a backend, and expects no failure.
inline void OnRanks(int n, const std::function<void(c10d::Backend&)>& fn,
                    int timeout_ms = 30000) {
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(timeout_ms);
  const StorePtr store = NewHashStore(options.timeout);
  const absl::Status status =
      RunThreadRanks(n, [&](Communicator& world) -> absl::Status {
        TANDEM_ASSIGN_OR_RETURN(
            auto backend,
            ShmBackend::Create(store, world.rank(), n, options.timeout));
        fn(*backend);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
}

inline void Everywhere(const std::vector<at::ScalarType>& dtypes,
                       const std::function<void(c10d::Backend&, int64_t size,
                                                at::ScalarType dtype)>& fn) {
  for (const int n : {1, 2, 3, 7}) {
    OnRanks(n, [&](c10d::Backend& backend) {
      for (const at::ScalarType dtype : dtypes) {
        for (const int64_t size : kSizes) fn(backend, size, dtype);
      }
    });
  }
}

inline const std::vector<at::ScalarType> kNumbers = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
    at::kShort, at::kInt,    at::kLong, at::kByte};
inline const std::vector<at::ScalarType> kSome = {at::kFloat, at::kByte,
                                                  at::kLong};

// Small whole numbers, so that sums are exact in every dtype.
inline at::Tensor Mine(int rank, int64_t size, at::ScalarType dtype) {
  return at::arange(size, at::kLong).remainder(3).add(rank % 3).to(dtype);
}

inline at::Tensor Sum(int ranks, int64_t size, at::ScalarType dtype) {
  at::Tensor sum = at::zeros({size}, at::kLong);
  for (int r = 0; r < ranks; ++r) sum.add_(Mine(r, size, at::kLong));
  return sum.to(dtype);
}

// Not EXPECT_EQ of tensors, whose message would be all their elements.
inline void ExpectEqual(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(got, expected))
      << got.numel() << " elements of " << got.scalar_type();
}

inline c10d::AllreduceOptions With(c10d::ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  return options;
}

// A tensor in the backend's own memory, with these values.
inline at::Tensor Shared(c10d::Backend& backend, const at::Tensor& values) {
  at::Tensor tensor =
      backend.allocateTensor(values.numel(), values.scalar_type());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U);
  tensor.copy_(values);
  return tensor;
}

inline std::string ErrorOf(const std::function<void()>& fn) {
  return std::string(CatchTorch(fn).message());
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_SHM_RANKS_H_
