#include "parallel/ddp/replica_parameters.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/named_tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem::replica_parameters_test {
namespace {

using testing::ElementsAre;

// "late" waits for "a", "own" is each replica's, and "copy" is a copy of
// another stage's "first".
NamedTensors Parameters() {
  NamedTensors parameters;
  for (const char* name : {"own", "a", "late", "copy", "b"}) {
    parameters.emplace_back(name, at::ones({3}).requires_grad_());
  }
  return parameters;
}

ReplicaParameterOptions Options() {
  ReplicaParameterOptions options;
  options.ddp.delay_all_reduce_named_params = {"late"};
  options.ddp.param_to_hook_all_reduce = "a";
  options.ddp.parameters_to_ignore = {"own", "own_statistics"};
  options.ddp.optimizer_group = [](const std::string& name) -> int64_t {
    return name == "first" ? 1 : 0;
  };
  options.first_of_copy = {{"copy", "first"}};
  return options;
}

std::unique_ptr<ReplicaParameters> Make(const NamedTensors& parameters) {
  const NamedTensors buffers = {{"statistics", at::ones({2})},
                                {"own_statistics", at::ones({2})}};
  auto made = ReplicaParameters::Create(parameters, buffers, Options(),
                                        /*replicas=*/nullptr);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<std::string> NamesIn(const FlatBufferList& buffers) {
  std::vector<std::string> names;
  for (const FlatBuffer* buffer : buffers) {
    for (const FlatSlot& slot : buffer->slots()) names.push_back(slot.name);
  }
  return names;
}

std::vector<std::string> NamesIn(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& each : tensors) names.push_back(each.first);
  return names;
}

TEST(ReplicaParametersTest, KindsLieInBuffersOfTheirOwnInOneOrder) {
  const auto replica = Make(Parameters());
  EXPECT_THAT(NamesIn(replica->all()),
              ElementsAre("b", "a", "late", "own", "copy"));
  EXPECT_THAT(NamesIn(replica->own()), ElementsAre("b", "a", "late", "own"));
  EXPECT_THAT(NamesIn(replica->averaged()),
              ElementsAre("b", "a", "late", "copy"));
  EXPECT_THAT(NamesIn(FlatBufferList(replica->averaged_at_once())),
              ElementsAre("b", "a", "copy"));
  EXPECT_THAT(NamesIn(FlatBufferList(replica->averaged_late())),
              ElementsAre("late"));
  EXPECT_THAT(NamesIn(replica->ignored()), ElementsAre("own"));
  // A copy is in its first member's group.
  EXPECT_THAT(NamesIn(replica->of_group(1)), ElementsAre("copy"));
  EXPECT_EQ(replica->flat_buffers().size(), replica->all().size());
}

TEST(ReplicaParametersTest, KnowsWhatReplicasHaveAlike) {
  const NamedTensors parameters = Parameters();
  const auto replica = Make(parameters);
  EXPECT_THAT(NamesIn(replica->AlikeOf(parameters)),
              ElementsAre("a", "late", "copy", "b"));
  EXPECT_EQ(replica->buffers().size(), 1u);
  EXPECT_TRUE(replica->is_ignored("own_statistics"));
}

TEST(ReplicaParametersTest, CopiesHaveTheStateOfTheirFirstMember) {
  const auto replica = Make(Parameters());
  const StoredTensors state = {{"a.momentum_buffer", at::ones({3})},
                               {"first.momentum_buffer", at::ones({3})},
                               {"another.momentum_buffer", at::ones({3})}};
  std::vector<std::string> mine;
  for (const StoredTensor& each : replica->StateOf(state)) {
    mine.push_back(each.info.name);
  }
  EXPECT_THAT(mine, ElementsAre("a.momentum_buffer", "copy.momentum_buffer"));
  EXPECT_THAT(NamesIn(replica->WithoutCopies(
                  {{"a.momentum_buffer", at::ones({3})},
                   {"copy.momentum_buffer", at::ones({3})}})),
              ElementsAre("a.momentum_buffer"));
}

TEST(ReplicaParametersTest, OneReplicaHasNothingToExchange) {
  const auto replica = Make(Parameters());
  EXPECT_TRUE(replica->TakeFrom(/*root=*/0).ok());
  EXPECT_TRUE(replica->BroadcastBuffers().ok());
}

}  // namespace
}  // namespace tandem::replica_parameters_test
