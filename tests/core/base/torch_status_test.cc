#include "core/base/torch_status.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "absl/strings/match.h"
#include "core/base/tensors.h"

namespace tandem::torch_status_test {
namespace {

using absl::StatusCode;

void ExpectOneUsefulText(const absl::Status& status, StatusCode code,
                         const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  for (const char* noise : {"Exception raised", "frame #", ".cpp", ".cc:"}) {
    EXPECT_FALSE(absl::StrContains(status.message(), noise)) << status;
  }
}

TEST(CatchTorchTest, NothingThrownIsOk) {
  EXPECT_TRUE(CatchTorch([] {}, "nothing").ok());
  EXPECT_EQ(CatchTorchOr([] { return 7; }).value(), 7);
}

TEST(CatchTorchTest, AShapeErrorIsInvalidArgumentWithTorchsOwnWords) {
  const absl::Status status = CatchTorch(
      [] {
        at::ones({2, 3}).matmul(at::ones({4, 5}));
      },
      "multiply");
  ExpectOneUsefulText(status, StatusCode::kInvalidArgument,
                      "multiply: mm: mat1 and mat2 shapes cannot be multiplied "
                      "(2x3 and 4x5)");
}

TEST(CatchTorchTest, ADtypeErrorIsInvalidArgument) {
  ExpectOneUsefulText(CatchTorch([] {
                        at::ones({2, 2}).matmul(at::ones({2, 2}, at::kDouble));
                      }),
                      StatusCode::kInvalidArgument, "dtype");
}

TEST(CatchTorchTest, AnIndexErrorIsOutOfRange) {
  ExpectOneUsefulText(CatchTorch([] { at::ones({2}).sum(5); }),
                      StatusCode::kOutOfRange, "Dimension out of range");
}

TEST(CatchTorchTest, AnAllocationThatCannotBeIsResourceExhausted) {
  ExpectOneUsefulText(CatchTorch([] { at::ones({int64_t{1} << 60}); }),
                      StatusCode::kResourceExhausted, "allocate");
  ExpectOneUsefulText(CatchTorch([] { throw std::bad_alloc(); }),
                      StatusCode::kResourceExhausted, "out of memory");
}

TEST(CatchTorchTest, ADeviceThatIsNotBuiltInIsAnError) {
  EXPECT_FALSE(CatchTorch([] { at::ones({2}).to(at::kCUDA); }).ok());
}

TEST(CatchTorchTest, AStoreThatWaitsInVainIsDeadlineExceeded) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  ExpectOneUsefulText(
      CatchTorch([&] { store->wait({"key"}, std::chrono::milliseconds(10)); }),
      StatusCode::kDeadlineExceeded, "");
}

TEST(CatchTorchTest, GlooTextsTellTimeoutsFromBrokenConnections) {
  ExpectOneUsefulText(
      CatchTorch([] {
        throw std::runtime_error(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
            "Connection closed by peer [127.0.0.1]:4711");
      }),
      StatusCode::kUnavailable, "Connection closed by peer [127.0.0.1]:4711");
  ExpectOneUsefulText(
      CatchTorch([] {
        throw std::runtime_error(
            "[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
            "500ms for recv operation to complete");
      }),
      StatusCode::kDeadlineExceeded, "Timed out waiting 500ms");
}

TEST(CatchTorchTest, DistributedErrorsByType) {
  const c10::SourceLocation here{"f", "f.cpp", 1};
  ExpectOneUsefulText(
      CatchTorch([&] { throw c10::DistNetworkError(here, "no route"); }),
      StatusCode::kUnavailable, "no route");
  ExpectOneUsefulText(
      CatchTorch([&] { throw c10::DistStoreError(here, "wait timeout"); }),
      StatusCode::kDeadlineExceeded, "wait timeout");
  ExpectOneUsefulText(
      CatchTorch([&] { throw c10::DistBackendError(here, "odd"); }),
      StatusCode::kInternal, "odd");
  ExpectOneUsefulText(
      CatchTorch([&] { throw c10::NotImplementedError(here, "not yet"); }),
      StatusCode::kUnimplemented, "not yet");
}

TEST(CatchTorchTest, AnAssertionOfTorchIsInternal) {
  ExpectOneUsefulText(CatchTorch([] { TORCH_INTERNAL_ASSERT(false, "bug"); }),
                      StatusCode::kInternal, "bug");
}

TEST(CatchTorchTest, OtherExceptions) {
  ExpectOneUsefulText(CatchTorch([] { throw std::out_of_range("at 9"); }),
                      StatusCode::kOutOfRange, "at 9");
  ExpectOneUsefulText(CatchTorch([] { throw std::runtime_error("odd"); }),
                      StatusCode::kInternal, "odd");
  ExpectOneUsefulText(CatchTorch([] { throw std::runtime_error(""); }),
                      StatusCode::kInternal, "without a message");
  ExpectOneUsefulText(CatchTorch([] { throw 7; }), StatusCode::kInternal,
                      "unknown type");
}

// The same error as std::thread's constructor throws.
TEST(CatchTorchTest, AThreadThatCannotBeStartedNamesTheLimits) {
  const absl::Status status = CatchTorch(
      [] {
        throw std::system_error(
            std::make_error_code(std::errc::resource_unavailable_try_again));
      },
      "train");
  ExpectOneUsefulText(status, StatusCode::kResourceExhausted,
                      "train: start a thread");
  ExpectOneUsefulText(status, StatusCode::kResourceExhausted, "ulimit -u");
  ExpectOneUsefulText(status, StatusCode::kResourceExhausted, "pids.max");
  ExpectOneUsefulText(CatchTorch([] {
                        throw std::system_error(
                            std::make_error_code(std::errc::not_supported),
                            "odd");
                      }),
                      StatusCode::kInternal, "odd");
}

TEST(CatchTorchTest, AReturnedStatusIsHandedThrough) {
  const absl::Status status =
      CatchTorch([] { return absl::NotFoundError("no file"); }, "load");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "load: no file");
}

TEST(CatchTorchOrTest, GivesTheValueOrTheError) {
  absl::StatusOr<at::Tensor> sum =
      CatchTorchOr([] { return at::ones({3}).sum(); });
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->item<float>(), 3);
  EXPECT_EQ(CatchTorchOr(
                [] {
                  return at::ones({3}).view({2, 2});
                },
                "cut")
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(CatchTorchOrTest, AStatusOrIsNotNested) {
  absl::StatusOr<std::unique_ptr<int>> value =
      CatchTorchOr([]() -> absl::StatusOr<std::unique_ptr<int>> {
        return std::make_unique<int>(3);
      });
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(**value, 3);
  absl::StatusOr<int> refused = CatchTorchOr(
      []() -> absl::StatusOr<int> { return absl::AbortedError("stop"); },
      "count");
  EXPECT_EQ(refused.status(), absl::AbortedError("count: stop"));
}

TEST(CleanTorchMessageTest, DropsFramesAndSourceLocations) {
  EXPECT_EQ(CleanTorchMessage("bad [2, 3]\nException raised from f at x.cpp:1"
                              " (most recent call first):\nframe #0: g"),
            "bad [2, 3]");
  EXPECT_EQ(CleanTorchMessage("[enforce fail at a.cpp:121] x == 0. Odd"),
            "x == 0. Odd");
  EXPECT_EQ(CleanTorchMessage("open [ only"), "open [ only");
  EXPECT_EQ(CleanTorchMessage("[gloo/pair.cc:547] Connection closed by peer "
                              "[127.0.0.1]:5. This is typically caused by a "
                              "remote worker crashing. Check the logs."),
            "Connection closed by peer [127.0.0.1]:5");
  EXPECT_EQ(CleanTorchMessage(""), "");
}

void RunOut() { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); }

class OutOfMemoryTest : public testing::Test {
 protected:
  ~OutOfMemoryTest() override { SetOutOfMemoryNote(nullptr); }
};

TEST_F(OutOfMemoryTest, TheNoteStandsBehindTheMessage) {
  EXPECT_EQ(NoteOnOutOfMemory(), "");
  EXPECT_EQ(CatchTorch(RunOut, "step 3").message(), "step 3: no memory");
  SetOutOfMemoryNote([] { return std::string("take less"); });
  EXPECT_EQ(NoteOnOutOfMemory(), "take less");
  const absl::Status status = CatchTorch(RunOut, "step 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "step 3: no memory; take less");
  SetOutOfMemoryNote([] { return std::string(); });
  EXPECT_EQ(CatchTorch(RunOut).message(), "no memory");
}

TEST_F(OutOfMemoryTest, OtherErrorsHaveNone) {
  SetOutOfMemoryNote([] { return std::string("take less"); });
  EXPECT_EQ(CatchTorch([] { throw std::runtime_error("other"); }).message(),
            "other");
  EXPECT_EQ(CatchTorch([] { TORCH_CHECK(false, "wrong shape"); }).message(),
            "wrong shape");
}

TEST(MultiplyInPlaceTest, RoundsTheProductAlone) {
  for (const c10::ScalarType dtype :
       {at::kBFloat16, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor numbers = at::arange(256).to(dtype);
    const at::Tensor product = numbers.clone();
    MultiplyInPlace(product, 1.0 / 3);
    const auto opmath = dtype == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_TRUE(at::equal(product, numbers.to(opmath).mul(1.0 / 3).to(dtype)))
        << dtype;
    EXPECT_EQ(product.scalar_type(), dtype);
  }
}

// When this fails, LibTorch's own will do.
TEST(MultiplyInPlaceTest, LibTorchsRoundsTheNumberToo) {
  const at::Tensor numbers = at::arange(256).to(at::kBFloat16);
  EXPECT_FALSE(at::equal(numbers.clone().mul_(1.0 / 3), numbers.mul(1.0 / 3)));
}

TEST(ViewedLeafTest, IsBehindAViewOfAllOfIt) {
  const at::Tensor leaf = at::ones({3, 3}).requires_grad_(true);
  EXPECT_TRUE(ViewedLeaf(leaf).is_same(leaf));
  EXPECT_TRUE(ViewedLeaf(leaf.view_as(leaf)).is_same(leaf));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(ViewedLeaf(leaf.view_as(leaf)).is_same(leaf));
}

TEST(ViewedLeafTest, IsNotBehindAViewOfAPartOrAnother) {
  const at::Tensor leaf = at::ones({3, 3}).requires_grad_(true);
  const at::Tensor computed = leaf.mul(2);
  for (const at::Tensor& other :
       {leaf.narrow(0, 0, 2), leaf.t(), leaf.view({9}), computed,
        computed.view_as(computed)}) {
    EXPECT_TRUE(ViewedLeaf(other).is_same(other));
  }
}

}  // namespace
}  // namespace tandem::torch_status_test
