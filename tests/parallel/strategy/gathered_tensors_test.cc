#include "parallel/strategy/gathered_tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"

namespace tandem::gathered_tensors_test {
namespace {

// Rank r has r tensors more than none: of several dtypes and shapes.
NamedTensors TensorsOf(int rank) {
  NamedTensors tensors;
  for (int i = 0; i < rank; ++i) {
    tensors.emplace_back(absl::StrCat("rank ", rank, ".tensor", i),
                         at::full({i, 3}, rank, at::kDouble).to(TestDevice()));
    tensors.emplace_back(absl::StrCat("rank ", rank, ".scalar", i),
                         at::full({}, i, at::kLong).to(TestDevice()));
  }
  return tensors;
}

at::Tensor Transposed() {
  return at::arange(6).view({2, 3}).to(TestDevice()).t();
}

// Keeps what comes, and in which order.
class Collector : public TensorSink {
 public:
  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name > b.name;
  }
  absl::Status Begin(std::vector<TensorInfo> given) override {
    infos = std::move(given);
    return absl::OkStatus();
  }
  absl::Status Add(const at::Tensor& values) override {
    if (fails_at == tensors.size()) return absl::DataLossError("the disk");
    tensors.emplace_back(infos.at(tensors.size()).name, values.cpu().clone());
    return absl::OkStatus();
  }

  size_t fails_at = 1000;
  std::vector<TensorInfo> infos;
  NamedTensors tensors;
};

TEST(GatheredTensorsTest, RankZeroGetsAllInTheSinksOrder) {
  ExpectOk(RunDeviceRanks(4, [](Communicator& world) -> absl::Status {
    Collector all;
    TANDEM_RETURN_IF_ERROR(StreamToRank0(TensorsOf(world.rank()), world, all));
    if (world.rank() != 0) {
      EXPECT_TRUE(all.infos.empty());
      EXPECT_TRUE(all.tensors.empty());
      return absl::OkStatus();
    }
    NamedTensors expected;
    for (int rank = 0; rank < 4; ++rank) {
      for (const auto& each : TensorsOf(rank)) expected.push_back(each);
    }
    std::sort(expected.begin(), expected.end(),
              [](const auto& a, const auto& b) { return a.first > b.first; });
    EXPECT_EQ(all.tensors.size(), expected.size());
    EXPECT_EQ(all.infos.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(all.tensors[i].first, expected[i].first);
      EXPECT_TRUE(all.tensors[i].second.equal(expected[i].second.cpu()));
      EXPECT_EQ(all.infos[i].dtype, expected[i].second.scalar_type());
      EXPECT_EQ(all.infos[i].sizes, expected[i].second.sizes());
    }
    return absl::OkStatus();
  }));
}

TEST(GatheredTensorsTest, OneRankKeepsItsOwn) {
  ExpectOk(RunDeviceRanks(1, [](Communicator& world) -> absl::Status {
    const NamedTensors mine = {{"a", Transposed()}};
    Collector all;
    TANDEM_RETURN_IF_ERROR(StreamToRank0(mine, world, all));
    EXPECT_EQ(all.tensors.size(), 1u);
    EXPECT_TRUE(all.tensors[0].second.equal(mine[0].second.cpu()));
    return absl::OkStatus();
  }));
}

TEST(GatheredTensorsTest, StridesDoNotMatter) {
  ExpectOk(RunDeviceRanks(2, [](Communicator& world) -> absl::Status {
    const at::Tensor tensor = Transposed();
    Collector all;
    TANDEM_RETURN_IF_ERROR(
        StreamToRank0({{absl::StrCat(world.rank()), tensor}}, world, all));
    if (world.rank() == 0) {
      EXPECT_TRUE(all.tensors.at(0).second.equal(tensor.cpu()));
    }
    return absl::OkStatus();
  }));
}

// A full disk, say: rank 0 aborts the group, and nobody waits for it.
TEST(GatheredTensorsTest, WhatTheSinkSaysEndsIt) {
  ExpectOk(RunDeviceRanks(3, [](Communicator& world) -> absl::Status {
    Collector all;
    all.fails_at = 3;
    const absl::Status failed =
        StreamToRank0(TensorsOf(world.rank()), world, all);
    if (!failed.ok()) world.Abort(failed);
    EXPECT_FALSE(failed.ok() && world.rank() == 0);
    EXPECT_TRUE(failed.ok() || absl::StrContains(failed.message(), "the disk"))
        << failed;
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::gathered_tensors_test
