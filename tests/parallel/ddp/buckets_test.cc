#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/mesh/mesh.h"
#include "core/model/parameter_traits.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/ddp/ready_marks.h"
#include "parallel/ddp/reducer_buckets.h"
#include "parallel/ddp/replica_parameters.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "tests/parallel/ddp/fixture.h"

namespace tandem::buckets_test {
namespace {

using testing::ElementsAre;

std::vector<FlatBuffer*> Pointers(const FlatBuffers& buffers) {
  std::vector<FlatBuffer*> pointers;
  for (const auto& buffer : buffers) pointers.push_back(buffer.get());
  return pointers;
}

NamedTensors Parameters(const std::vector<int64_t>& sizes,
                        at::ScalarType dtype = at::kFloat) {
  NamedTensors parameters;
  for (int64_t size : sizes) {
    parameters.emplace_back(std::to_string(parameters.size()),
                            at::ones({size}, dtype).requires_grad_(true));
  }
  return parameters;
}

// Numbers of slots, by bucket.
std::vector<size_t> Cut(const std::vector<int64_t>& sizes,
                        const std::vector<int64_t>& limits) {
  const FlatBuffers buffers = MakeFlatBuffers(Parameters(sizes));
  const std::vector<int64_t> rank_of(sizes.size());
  std::vector<size_t> counts;
  int64_t offset = 0;
  for (const Bucket& bucket :
       MakeBuckets(Pointers(buffers), {limits}, rank_of)) {
    EXPECT_EQ(bucket.offset, offset);
    offset += bucket.length;
    counts.push_back(bucket.end - bucket.first);
  }
  EXPECT_EQ(offset, buffers.empty() ? 0 : buffers[0]->grads().numel());
  return counts;
}

using Counts = std::vector<size_t>;

// 16 floats are 64 bytes. The last parameter comes first.
TEST(Buckets, FillUpToTheirLimit) {
  EXPECT_EQ(Cut({16, 16, 16, 16}, {64}), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {128}), (Counts{2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {65}), (Counts{2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {1 << 20}), (Counts{4}));
  EXPECT_EQ(Cut({16, 16, 16, 16}, {1}), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(Cut({1000, 1}, {128}), (Counts{2}));  // 1 does not fill one
  EXPECT_EQ(Cut({1, 1000}, {128}), (Counts{1, 1}));
  EXPECT_EQ(Cut({0, 0}, {64}), (Counts{2}));
  EXPECT_EQ(Cut({7}, {64}), (Counts{1}));
}

TEST(Buckets, LimitsCanDiffer) {
  EXPECT_EQ(Cut({16, 16, 16, 16, 16, 16, 16}, {64, 128}), (Counts{1, 2, 2, 2}));
  EXPECT_EQ(Cut({16, 16, 16, 16, 16, 16, 16}, {128, 64, 192}),
            (Counts{2, 1, 3, 1}));
}

TEST(Buckets, DefaultsArePyTorchs) {
  const BucketOptions options;
  EXPECT_EQ(options.limits,
            (std::vector<int64_t>{1024 * 1024, 25 * 1024 * 1024}));
}

// Buckets of two buffers mix, each where its last gradient comes.
TEST(Buckets, ComeInTheOrderInWhichTheyFill) {
  NamedTensors parameters = Parameters({16, 16});  // positions 0, 1
  NamedTensors doubles = Parameters({16, 16}, at::kDouble);
  parameters.insert(parameters.end(), doubles.begin(), doubles.end());
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  ASSERT_EQ(buffers.size(), 2u);
  const auto order = [&](const std::vector<int64_t>& rank_of) {
    std::string text;
    for (const Bucket& b : MakeBuckets(Pointers(buffers), {{1}}, rank_of)) {
      text += std::to_string(b.buffer->slots()[b.first].position);
    }
    return text;
  };
  EXPECT_EQ(order({3, 2, 1, 0}), "3210");
  EXPECT_EQ(order({0, 2, 1, 3}), "0213");
}

// Positions, by bucket, of parameters that become ready as they are listed.
std::vector<std::vector<int64_t>> Assign(NamedTensors parameters,
                                         const std::vector<int64_t>& limits) {
  const auto n = static_cast<int64_t>(parameters.size());
  std::reverse(parameters.begin(), parameters.end());
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  std::vector<int64_t> rank_of;
  for (int64_t i = 0; i < n; ++i) rank_of.push_back(n - 1 - i);
  std::vector<std::vector<int64_t>> buckets;
  for (const Bucket& b : MakeBuckets(Pointers(buffers), {limits}, rank_of)) {
    buckets.emplace_back();
    for (size_t i = b.first; i < b.end; ++i) {
      buckets.back().push_back(n - 1 - b.buffer->slots()[i].position);
    }
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

// The tables of PyTorch's ComputeBucketAssignmentTest (test_c10d_common.py).
TEST(Buckets, EqualPyTorchsTables) {
  using Table = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(Assign(Parameters({100, 200, 100, 50}), {400}),
            (Table{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(Assign(Parameters({10, 10, 10, 10}), {40, 80}),
            (Table{{0}, {1, 2}, {3}}));
  NamedTensors mixed;
  for (int i = 0; i < 3; ++i) {
    mixed.push_back(Parameters({50})[0]);
    mixed.push_back(Parameters({25}, at::kDouble)[0]);
  }
  EXPECT_EQ(Assign(mixed, {400}), (Table{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(Assign(mixed, {200, 400}), (Table{{0}, {1}, {2, 4}, {3, 5}}));
}

TEST(Buckets, NothingMakesNone) {
  EXPECT_TRUE(MakeBuckets({}, BucketOptions{}, {}).empty());
}

using Positions = std::vector<int64_t>;

// Position 1 is not trained.
ReadyMarks Marks(bool static_graph) {
  return ReadyMarks({"a", "", "b", "c"}, static_graph);
}

TEST(ReadyMarks, OneMarkMakesReadyASecondIsNamed) {
  ReadyMarks marks = Marks(false);
  for (int step = 0; step < 2; ++step) {
    marks.Reset();
    EXPECT_EQ(marks.Unmarked(), (Positions{0, 2, 3}));
    EXPECT_TRUE(marks.Mark(2).value());
    EXPECT_TRUE(marks.Mark(0).value());
    EXPECT_EQ(marks.Unmarked(), (Positions{3}));
    EXPECT_THAT(
        marks.CheckAllMarked(),
        InvalidArgument(
            "a parameter got no gradient in this backward: c (index 3). "));
    EXPECT_TRUE(marks.Mark(3).value());
    EXPECT_TRUE(marks.CheckAllMarked().ok());
    EXPECT_EQ(marks.Order(), (Positions{2, 0, 3}));
    EXPECT_THAT(marks.Mark(0).status(),
                InvalidArgument("parameter a was marked ready twice"));
  }
}

TEST(ReadyMarks, UnmarkedComeLastReversed) {
  ReadyMarks marks = Marks(false);
  EXPECT_EQ(marks.Order(), (Positions{3, 2, 0}));
  ASSERT_TRUE(marks.Mark(0).ok());
  EXPECT_EQ(marks.Order(), (Positions{0, 3, 2}));
  EXPECT_THAT(marks.CheckAllMarked(),
              InvalidArgument("parameters got no gradient in this "
                              "backward: b (index 2), c (index 3). "));
}

TEST(ReadyMarks, StaticGraphCountsAsTheFirstBackwardDid) {
  ReadyMarks marks = Marks(true);
  EXPECT_TRUE(marks.learning());
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_FALSE(marks.Mark(2).value());
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_EQ(marks.Order(), (Positions{2, 0, 3}));  // by the last mark
  marks.Learn();
  EXPECT_FALSE(marks.learning());
  EXPECT_FALSE(marks.expects(3));
  marks.Reset();
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_THAT(marks.CheckUnchanged(),
              InvalidArgument("in this one: a (index 0), b (index 2). "));
  EXPECT_TRUE(marks.Mark(0).value());
  EXPECT_TRUE(marks.Mark(2).value());
  EXPECT_TRUE(marks.CheckUnchanged().ok());
  EXPECT_THAT(
      marks.Mark(2).status(),
      InvalidArgument(
          "the gradient of b was ready 2 times in this backward and 1 times "
          "in the first"));
  EXPECT_THAT(marks.Mark(3).status(),
              InvalidArgument("graph changed under static_graph"));
}

TEST(ReadyMarks, WhatIsRetiredMustStayAway) {
  ReadyMarks marks = Marks(false);
  marks.Retire(2);
  ASSERT_TRUE(marks.Mark(0).ok());
  ASSERT_TRUE(marks.Mark(3).ok());
  EXPECT_TRUE(marks.CheckAllMarked().ok());
  EXPECT_THAT(marks.Mark(2).status(),
              InvalidArgument("skip_all_reduce_unused_params"));
}

// Others have learned their graphs; this rank's comes later.
TEST(ReadyMarks, WhatIsRetiredIsInNoGraphThatIsLearnedLater) {
  ReadyMarks marks = Marks(true);
  marks.Retire(2);
  marks.Reset();
  EXPECT_FALSE(marks.Mark(0).value());
  EXPECT_THAT(marks.Mark(2).status(),
              InvalidArgument("graph changed under static_graph"));
}

TEST(ReadyMarks, LongListsAreCut) {
  ReadyMarks marks(std::vector<std::string>(25, "p"), false);
  EXPECT_THAT(marks.CheckAllMarked(), InvalidArgument(" and 5 more. "));
}

// "late" waits for "a", "own" is each replica's, and "copy" is a copy of
// another stage's "first".
NamedTensors NineParameters() {
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

TEST(ReplicaParametersTest, KindsLieInBuffersOfTheirOwnInOneOrder) {
  const auto replica = Make(NineParameters());
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
  const NamedTensors parameters = NineParameters();
  const auto replica = Make(parameters);
  EXPECT_THAT(NamesIn(replica->SelectAlike(parameters)),
              ElementsAre("a", "late", "copy", "b"));
  EXPECT_EQ(replica->buffers().size(), 1u);
  EXPECT_TRUE(replica->is_ignored("own_statistics"));
}

TEST(ReplicaParametersTest, CopiesHaveTheStateOfTheirFirstMember) {
  const auto replica = Make(NineParameters());
  const StoredTensors state = {{"a.momentum_buffer", at::ones({3})},
                               {"first.momentum_buffer", at::ones({3})},
                               {"another.momentum_buffer", at::ones({3})}};
  std::vector<std::string> mine;
  for (const StoredTensor& each : replica->SelectState(state)) {
    mine.push_back(each.info.name);
  }
  EXPECT_THAT(mine, ElementsAre("a.momentum_buffer", "copy.momentum_buffer"));
  EXPECT_THAT(NamesIn(replica->WithoutCopies(
                  {{"a.momentum_buffer", at::ones({3})},
                   {"copy.momentum_buffer", at::ones({3})}})),
              ElementsAre("a.momentum_buffer"));
}

TEST(ReplicaParametersTest, OneReplicaHasNothingToExchange) {
  const auto replica = Make(NineParameters());
  EXPECT_TRUE(replica->TakeFrom(/*root=*/0).ok());
  EXPECT_TRUE(replica->BroadcastBuffers().ok());
}

ParameterTraits Sharded(const std::string& axis) {
  ParameterTraits traits;
  traits.shard = ParameterShard{axis, 0};
  return traits;
}

// Each kind of tensor that a rank of a mesh data 2 x tensor 2 has.
NamedTensors KindsOfParameters(double value) {
  NamedTensors parameters;
  for (const char* name : {"whole", "part", "own", "ignored"}) {
    parameters.emplace_back(name, at::full({3}, value).requires_grad_());
  }
  parameters.emplace_back("frozen", at::full({3}, value));
  parameters.emplace_back("frozen_part", at::full({3}, value));
  return parameters;
}

// Each from the first of those that have the same.
TEST(ReplicaParametersTest, RanksTakeWhatTheirTraitsSayTheyHaveAlike) {
  const Mesh mesh = *Mesh::Create({{"data", 2}, {"tensor", 2}});
  ExpectOk(RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
    const int rank = world.rank();
    std::map<std::vector<absl::string_view>, std::unique_ptr<Communicator>>
        groups;
    for (const std::vector<absl::string_view>& axes :
         std::vector<std::vector<absl::string_view>>{
             {}, {"data"}, {"tensor"}, {"data", "tensor"}}) {
      TANDEM_ASSIGN_OR_RETURN(
          groups[axes], world.Subgroup(mesh.RanksAlong(axes, rank), "alike"));
    }
    ReplicaParameterOptions options;
    options.ddp.parameters_to_ignore = {"ignored"};
    options.traits["part"] = Sharded("tensor");
    options.traits["frozen_part"] = Sharded("tensor");
    options.traits["own"].reduce_axes.clear();
    options.alike_group = [&](const ParameterTraits& traits) {
      std::vector<absl::string_view> axes;
      for (const MeshAxis& axis : mesh.axes()) {
        if (traits.is_alike_along(axis.name)) axes.push_back(axis.name);
      }
      return groups.at(axes).get();
    };
    const NamedTensors parameters = KindsOfParameters(rank);
    const NamedTensors buffers = {{"statistics", at::full({2}, rank)}};
    TANDEM_ASSIGN_OR_RETURN(
        const auto made, ReplicaParameters::Create(parameters, buffers, options,
                                                   groups.at({"data"}).get()));
    TANDEM_RETURN_IF_ERROR(made->TakeFrom(/*root=*/0));
    const int along_tensor = mesh.IndexAlong("tensor", rank);
    const int first_of_replica = 2 * mesh.IndexAlong("data", rank);
    const std::vector<int> expected = {
        0, along_tensor, first_of_replica, first_of_replica, 0, along_tensor};
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i].second[1].item<double>(), expected[i])
          << rank << " " << parameters[i].first;
    }
    EXPECT_EQ(buffers[0].second[1].item<double>(), 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace tandem::buckets_test
