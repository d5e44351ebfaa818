// Gradients that are reduced to the owners of optimizer shares alone: what an
// owner gets has the bits of the all-reduce, and nobody gets anything else.

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/comm/group_buffer.h"
#include "core/device/memory_category.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "models/mlp.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem::reduce_scatter_test {
namespace {

struct Case {
  std::vector<int64_t> sizes;  // of parameters
  int64_t bucket_bytes;
  bool in_shared_memory;  // else each bucket goes through slots
};

// Some buckets lie in several shares, some shares in several buckets; up to a
// few shares are empty.
const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {{1, 17, 16, 3, 331}, 64, true},
      {{1}, 1 << 20, true},
      {{40009, 5, 70001, 12289}, 1 << 20, true},
      {{40009, 5, 70001, 12289}, 1 << 15, true},
      {{40009, 5, 70001, 12289}, 1 << 18, false},
  };
  return *cases;
}

// One rank's parameters and their reducer.
class Replica {
 public:
  Replica(const Case& test_case, Communicator& group) : group_(group) {
    NamedTensors parameters;
    for (const int64_t size : test_case.sizes) {
      parameters.emplace_back(absl::StrCat("p", parameters.size()),
                              at::ones({size}).requires_grad_(true));
    }
    FlatBufferOptions options;
    if (test_case.in_shared_memory) {
      options.allocate = [&group](int64_t numel,
                                  const at::TensorOptions& like) {
        return *NewGroupBuffer(group, numel, like);
      };
    }
    flat_ = MakeFlatBuffers(parameters, options);
    ReducerOptions reducer;
    reducer.buckets.limits = {test_case.bucket_bytes};
    reducer_ = std::make_unique<Reducer>(
        std::vector<FlatBuffer*>{flat_[0].get()}, group, reducer);
  }

  // Values of this rank alone, in every element another one, and of different
  // sizes, so that the order of a sum shows.
  at::Tensor Local(int step) const {
    const at::Tensor places = at::arange(flat().grads().numel(), at::kDouble);
    return places.mul(0.7 + group_.rank() + step)
        .sin()
        .mul(at::Scalar(1 << (3 * (group_.rank() % 5))))
        .to(at::kFloat);
  }

  absl::Status Reduce(bool scatters, int step) {
    flat().ZeroGrad();
    reducer_->set_scatters(scatters);
    TANDEM_RETURN_IF_ERROR(reducer_->PrepareForForward());
    reducer_->Begin();
    flat().grads().copy_(Local(step));
    for (size_t i = 0; i < flat().slots().size(); ++i) {
      flat().set_has_gradient(i, true);
      reducer_->MarkReady(flat().slots()[i].position);
    }
    return reducer_->Finish();
  }

  FlatBuffer& flat() const { return *flat_[0]; }

 private:
  Communicator& group_;
  FlatBuffers flat_;
  std::unique_ptr<Reducer> reducer_;
};

absl::Status Compare(const Case& test_case, Communicator& group) {
  Replica replica(test_case, group);
  for (int step = 0; step < 3; ++step) {
    TANDEM_RETURN_IF_ERROR(replica.Reduce(/*scatters=*/false, step));
    const at::Tensor all = replica.flat().grads().clone();
    // Buckets are rebuilt after the first step, and gradients move.
    const at::Tensor local = replica.Local(step);
    TANDEM_RETURN_IF_ERROR(replica.Reduce(/*scatters=*/true, step));
    const at::Tensor found = replica.flat().grads();
    int64_t covered = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      const ElementSpan span = ShareSpan(replica.flat(), {rank, group.size()});
      const bool is_mine = rank == group.rank();
      const at::Tensor& expected = is_mine ? all : local;
      const auto part = [&span](const at::Tensor& flat) {
        return flat.narrow(0, span.begin, span.length());
      };
      EXPECT_TRUE(part(found).equal(part(expected)))
          << "share " << rank << " on rank " << group.rank() << " of "
          << group.size() << ", step " << step;
      covered += span.length();
    }
    EXPECT_EQ(covered, found.numel());
  }
  return absl::OkStatus();
}

TEST(ReduceScatterTest, OwnersGetTheBitsOfTheAllReduceAndNobodyElseAnything) {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const Case& test_case : Cases()) {
      CommunicatorOptions options;
      options.backend = "shm";
      ExpectOk(RunThreadRanks(
          ranks,
          [&test_case](Communicator& group) {
            return Compare(test_case, group);
          },
          options));
    }
  }
}

// What a rank holds for the optimizer when replicas share it: counted on
// simulated devices.

constexpr int64_t kBatch = 6;

int64_t StateInUse(const c10::Device& device) {
  return sim::DeviceMemoryStatistics(device.index())
      .now.by_category[static_cast<size_t>(MemoryCategory::kOptimizer)];
}

// Bytes of optimizer state by rank, after two steps.
std::vector<int64_t> StateOf(int ranks, Sharding sharding) {
  const std::vector<c10::Device> devices = SimDevices(4);
  std::vector<int64_t> bytes(static_cast<size_t>(ranks), -1);
  ExpectOk(RunThreadRanks(ranks, [&](Communicator& world) -> absl::Status {
    const auto rank = static_cast<size_t>(world.rank());
    MeshStrategyOptions options;
    TANDEM_ASSIGN_OR_RETURN(options.schedule, SequentialSchedule(1, 1));
    options.devices = {devices[rank]};
    options.optimizer = AdamOptions();
    options.shard = sharding;
    const int64_t before = StateInUse(devices[rank]);
    TANDEM_ASSIGN_OR_RETURN(
        const auto strategy,
        MeshStrategy::Create(LabSpecs("mlp_small"), CrossEntropy, options,
                             &world));
    for (int step = 0; step < 2; ++step) {
      const Batch batch = LabBatch("mlp_small", kBatch, kLabSeed, step);
      TANDEM_RETURN_IF_ERROR(strategy->TrainStep(batch, 0.1).status());
    }
    bytes[rank] = StateInUse(devices[rank]) - before;
    return absl::OkStatus();
  }));
  return bytes;
}

TEST(ShardedMemoryTest, EachReplicaHoldsItsShareOfTheState) {
  const int64_t whole = StateOf(2, Sharding::kOff)[0];
  ASSERT_GT(whole, 0);
  for (const int ranks : {2, 3, 4}) {
    int64_t all = 0;
    for (const int64_t bytes : StateOf(ranks, Sharding::kOptimizer)) {
      all += bytes;
      // Two states, each rounded to 64 bytes, in blocks of 64.
      EXPECT_NEAR(static_cast<double>(bytes),
                  static_cast<double>(whole) / ranks, 4 * 64.0)
          << ranks << " replicas";
    }
    EXPECT_NEAR(static_cast<double>(all), static_cast<double>(whole),
                ranks * 4 * 64.0);
  }
}

}  // namespace
}  // namespace tandem::reduce_scatter_test
