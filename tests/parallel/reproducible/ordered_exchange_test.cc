#include "parallel/reproducible/ordered_exchange.h"

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"
#include "core/sim/testing.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem::ordered_exchange_test {
namespace {

using Node = SummationTree::Node;

at::Tensor Term(int number, int64_t size) {
  return at::randn({size}, GeneratorFor(5, absl::StrCat("term ", number)));
}

// By the tree's definition, from its terms.
at::Tensor SumOf(const SummationTree& tree, const Node& node, int64_t size) {
  if (node.level == 0) return Term(node.index, size);
  const Node left = {node.level - 1, 2 * node.index};
  const at::Tensor sum = SumOf(tree, left, size);
  if (!tree.has_sibling(left)) return sum;
  return sum.add(SumOf(tree, SummationTree::Sibling(left), size));
}

// Simulated devices where the backend is for those.
const c10::DeviceType device_type =
    TestBackend() == "sim_nccl" ? SimDevices(1).front().type() : c10::kCPU;

// Replicas, terms of each, numbers of each.
class OrderedExchangeTest
    : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  static CommunicatorOptions Options() {
    CommunicatorOptions options;
    options.backend = TestBackend();
    options.timeout = std::chrono::seconds(30);
    return WithTestDevice(options);
  }

 private:
  TestDeviceTypeScope scope_{device_type};
};

TEST_P(OrderedExchangeTest, EveryReplicaHasTheTreesBits) {
  const auto [replicas, terms, size] = GetParam();
  const SummationTree tree(replicas * terms);
  ExpectOk(RunThreadRanks(
      replicas,
      [&, size = size](Communicator& group) -> absl::Status {
        const OrderedExchange exchange(tree, &group);
        std::vector<at::Tensor> sums;
        for (const Node& node : exchange.cover()) {
          sums.push_back(SumOf(tree, node, size).to(TestDevice()));
        }
        const at::Tensor expected = SumOf(tree, tree.root(), size);
        for (int number : {0, 1}) {
          const at::Tensor result = at::full({size}, -1.0).to(TestDevice());
          TANDEM_RETURN_IF_ERROR(exchange.Sum(sums, number, result));
          EXPECT_TRUE(result.cpu().equal(expected)) << "rank " << group.rank();
        }
        return absl::OkStatus();
      },
      &Options, std::chrono::seconds(30)));
}

// Sizes with replicas that have no share, and shares that are not full.
INSTANTIATE_TEST_SUITE_P(Sizes, OrderedExchangeTest,
                         testing::Combine(testing::Values(2, 3, 4, 7),
                                          testing::Values(1, 2, 3, 6),
                                          testing::Values(0, 1, 17, 211)));

TEST(OrderedExchange, AReplicaAloneHasTheRoot) {
  const SummationTree tree(6);
  const OrderedExchange exchange(tree, nullptr);
  EXPECT_THAT(exchange.cover(), testing::ElementsAre(tree.root()));
}

}  // namespace
}  // namespace tandem::ordered_exchange_test
