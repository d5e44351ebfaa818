#include "parallel/comm_hooks/compression_hooks.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "tests/parallel/comm_hooks/hook_driver.h"

namespace tandem::compression_hooks_test {
namespace {

// Channels-last, a scalar, primes, nothing.
const std::vector<DriverParameters>& Buckets() {
  static const auto* const buckets = new std::vector<DriverParameters>{
      {{"conv", {4, 3, 2, 2}, {12, 1, 6, 3}}, {"bias", {7}}},
      {{"empty", {0}}, {"scalar", {}}, {"weight", {13, 17}}}};
  return *buckets;
}

absl::Status Expect(bool holds, const std::string& what) {
  return holds ? absl::OkStatus() : absl::InternalError(what);
}

// Is every gradient value(name, sizes), within `tolerance` of it?
absl::Status ExpectGradients(
    const HookDriver& driver,
    const std::function<at::Tensor(const std::string&, at::IntArrayRef)>& value,
    double tolerance) {
  for (const DriverParameters& parameters : Buckets()) {
    for (const DriverParameter& each : parameters) {
      const at::Tensor gradient =
          driver.gradient(each.name).to(at::kCPU, at::kDouble);
      const at::Tensor expected =
          value(each.name, gradient.sizes()).to(at::kDouble);
      if (!at::allclose(gradient, expected, tolerance, tolerance)) {
        return absl::InternalError(absl::StrCat(each.name, " is wrong"));
      }
    }
  }
  return absl::OkStatus();
}

struct Case {
  std::string name;
  CommunicationHook (*make)();
  at::ScalarType dtype;  // in which it sums
  double tolerance;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

class HookTest : public DeviceTypesAnd<Case> {};

TEST_P(HookTest, TakesTheMeanOverAnyNumberOfRanks) {
  for (int n : {1, 2, 3, 7}) {
    const absl::Status status =
        RunDeviceRanks(n, [n](Communicator& world) -> absl::Status {
          const CommunicationHook hook = value().make();
          HookDriver driver(Buckets());
          for (int step = 0; step < 3; ++step) {
            FillNormal(step, world.rank(), &driver);
            TANDEM_RETURN_IF_ERROR(driver.Reduce(hook, world));
            TANDEM_RETURN_IF_ERROR(driver.CheckAlike(world));
            TANDEM_RETURN_IF_ERROR(ExpectGradients(
                driver,
                [&](const std::string& name, at::IntArrayRef sizes) {
                  return MeanNormal(step, n, name, sizes);
                },
                value().tolerance));
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << n << " ranks: " << status;
  }
}

// Cast, divide, sum: each in the dtype that travels.
TEST_P(HookTest, TwoRanksGiveExactlyTheStatedArithmetic) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    HookDriver driver(Buckets());
    FillNormal(0, world.rank(), &driver);
    TANDEM_RETURN_IF_ERROR(driver.Reduce(value().make(), world));
    const auto part = [](int rank, const std::string& name,
                         at::IntArrayRef sizes) {
      return Normal(0, rank, name, sizes).to(value().dtype).div(2);
    };
    return ExpectGradients(
        driver,
        [&](const std::string& name, at::IntArrayRef sizes) {
          return part(0, name, sizes).add(part(1, name, sizes));
        },
        0);
  }));
}

TEST_P(HookTest, ServesOtherBucketsOnceTheyAreRebuilt) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    const CommunicationHook hook = value().make();
    std::vector<DriverParameters> rebuilt = Buckets();
    std::swap(rebuilt[0][0], rebuilt[1][2]);
    for (const auto& buckets : {Buckets(), rebuilt}) {
      HookDriver driver(buckets);
      FillNormal(0, world.rank(), &driver);
      TANDEM_RETURN_IF_ERROR(driver.Reduce(hook, world));
      TANDEM_RETURN_IF_ERROR(ExpectGradients(
          driver,
          [](const std::string& name, at::IntArrayRef sizes) {
            return MeanNormal(0, 2, name, sizes);
          },
          value().tolerance));
    }
    return absl::OkStatus();
  }));
}

TANDEM_ON_DEVICE_TYPES_AND(
    HookTest,
    testing::Values(Case{"AllReduce", AllReduceHook, at::kFloat, 1e-6},
                    Case{"Fp16", Fp16CompressHook, at::kHalf, 4e-3},
                    Case{"Bf16", Bf16CompressHook, at::kBFloat16, 3e-2}));

// A group of one, for what needs no others.
absl::Status Alone(const std::function<absl::Status(Communicator&)>& fn) {
  return RunDeviceRanks(1, fn);
}

struct Wrapper {
  CommunicationHook (*wrap)(CommunicationHook);
  at::ScalarType dtype;
};

class WrapperTest : public DeviceTypesAnd<Wrapper> {};

// What a hook of a user's own sees and leaves, and that its bucket lies in the
// same memory in each step.
TEST_P(WrapperTest, ShowsTheBucketInHalfPrecision) {
  ExpectOk(Alone([](Communicator& world) -> absl::Status {
    std::vector<const void*> seen;
    int finished = 0;
    const CommunicationHook hook = value().wrap([&](const GradBucket& bucket,
                                                    Communicator&) {
      EXPECT_EQ(bucket.buffer.scalar_type(), value().dtype);
      EXPECT_EQ(bucket.is_last, bucket.index == 1);
      EXPECT_EQ(bucket.names[0], Buckets()[bucket.index][0].name);
      for (size_t i = 0; i < bucket.names.size(); ++i) {
        const at::Tensor& gradient = bucket.gradients[i];
        EXPECT_EQ(gradient.strides(), bucket.parameters[i].strides());
        EXPECT_TRUE(gradient.cpu().equal(
            Normal(0, 0, bucket.names[i], gradient.sizes()).to(value().dtype)));
      }
      seen.push_back(bucket.buffer.const_data_ptr());
      return FinishReduction([&finished, buffer = bucket.buffer] {
        buffer.mul_(2);
        ++finished;
        return absl::OkStatus();
      });
    });
    HookDriver driver(Buckets());
    for (int step = 0; step < 2; ++step) {
      FillNormal(0, 0, &driver);
      TANDEM_RETURN_IF_ERROR(driver.Reduce(hook, world));
      TANDEM_RETURN_IF_ERROR(ExpectGradients(
          driver,
          [](const std::string& name, at::IntArrayRef sizes) {
            return Normal(0, 0, name, sizes).to(value().dtype).mul(2);
          },
          0));
    }
    EXPECT_EQ(finished, 4);
    EXPECT_EQ(seen[0], seen[2]);
    EXPECT_EQ(seen[1], seen[3]);
    return absl::OkStatus();
  }));
}

TEST_P(WrapperTest, HandsThroughWhatIsHalfAlready) {
  ExpectOk(Alone([](Communicator& world) -> absl::Status {
    HookDriver driver(Buckets(), value().dtype);
    const CommunicationHook hook = value().wrap([&](const GradBucket& bucket,
                                                    Communicator&) {
      EXPECT_TRUE(bucket.buffer.is_same(driver.buckets()[bucket.index].buffer));
      return FinishReduction([] { return absl::OkStatus(); });
    });
    return driver.Reduce(hook, world);
  }));
}

TEST_P(WrapperTest, HandsErrorsThroughAndLeavesGradientsAlone) {
  ExpectOk(Alone([](Communicator& world) -> absl::Status {
    HookDriver driver(Buckets());
    FillNormal(0, 0, &driver);
    const CommunicationHook at_start =
        value().wrap([](const GradBucket&,
                        Communicator&) -> absl::StatusOr<FinishReduction> {
          return absl::AbortedError("not today");
        });
    EXPECT_EQ(driver.Reduce(at_start, world), absl::AbortedError("not today"));
    const CommunicationHook at_end =
        value().wrap([](const GradBucket&, Communicator&) {
          return FinishReduction([] { return absl::AbortedError("nor now"); });
        });
    EXPECT_EQ(driver.Reduce(at_end, world), absl::AbortedError("nor now"));
    return ExpectGradients(
        driver,
        [](const std::string& name, at::IntArrayRef sizes) {
          return Normal(0, 0, name, sizes);
        },
        0);
  }));
}

TANDEM_ON_DEVICE_TYPES_AND(
    WrapperTest, testing::Values(Wrapper{Fp16CompressWrapper, at::kHalf},
                                 Wrapper{Bf16CompressWrapper, at::kBFloat16}));

class Fp16CompressHookTest : public DeviceTypeTest {};

TEST_P(Fp16CompressHookTest, OverflowShowsAsInfinity) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    HookDriver driver(Buckets());
    driver.Fill([](const std::string&, at::IntArrayRef sizes) {
      return at::full(sizes, 1e5);
    });
    TANDEM_RETURN_IF_ERROR(driver.Reduce(Fp16CompressHook(), world));
    return Expect(driver.gradient("bias").isinf().all().item<bool>(),
                  "no infinity");
  }));
}

// Doubles, and the reason why the division comes first: a sum of halves would
// overflow.
TEST_P(Fp16CompressHookTest, DividesBeforeItSums) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    HookDriver driver(Buckets(), at::kDouble);
    const auto value = [](const std::string&, at::IntArrayRef sizes) {
      return at::full(sizes, 60000., at::kDouble);
    };
    driver.Fill(value);
    TANDEM_RETURN_IF_ERROR(driver.Reduce(Fp16CompressHook(), world));
    return ExpectGradients(driver, value, 1e-3);
  }));
}

TANDEM_ON_DEVICE_TYPES(Fp16CompressHookTest);

GradBucket Bucket(int64_t index, bool is_last, const at::Tensor& buffer) {
  GradBucket bucket;
  bucket.index = index;
  bucket.is_last = is_last;
  bucket.buffer = buffer;
  bucket.names = {"p"};
  return bucket;
}

TEST(BucketMemory, HoldsWhatWasKeptForTheSameBucket) {
  BucketMemory<int> memory;
  const at::Tensor a = at::zeros({4});
  const at::Tensor b = at::zeros({4});
  EXPECT_EQ(memory.Find(Bucket(0, true, a)), nullptr);
  EXPECT_EQ(*memory.Keep(Bucket(0, true, a), 7), 7);
  ASSERT_NE(memory.Find(Bucket(0, true, a)), nullptr);
  EXPECT_EQ(*memory.Find(Bucket(0, true, a)), 7);
  EXPECT_EQ(memory.Find(Bucket(0, true, b)), nullptr);
  GradBucket renamed = Bucket(0, true, a);
  renamed.names = {"q"};
  EXPECT_EQ(memory.Find(renamed), nullptr);
}

TEST(BucketMemory, LetsGoOfBucketsThatARebuildHasTaken) {
  BucketMemory<int> memory;
  const at::Tensor before = at::zeros({4});
  for (int64_t i = 0; i < 5; ++i) memory.Keep(Bucket(i, i == 4, before), 1);
  EXPECT_EQ(memory.size(), 5u);
  const at::Tensor after = at::zeros({8});
  for (int64_t i = 0; i < 2; ++i) memory.Keep(Bucket(i, i == 1, after), 2);
  EXPECT_EQ(memory.size(), 2u);
  EXPECT_EQ(*memory.Find(Bucket(1, true, after)), 2);
}

}  // namespace
}  // namespace tandem::compression_hooks_test
