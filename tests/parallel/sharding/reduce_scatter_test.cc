// Gradients that are reduced to the owners of optimizer shares alone: what an
// owner gets has the bits of the all-reduce, and nobody gets anything else.

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/named_tensors.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/ddp/reducer.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/optimizer_share.h"

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
  Replica(const Case& its, Communicator& group) : group_(group) {
    NamedTensors parameters;
    for (const int64_t size : its.sizes) {
      parameters.emplace_back(absl::StrCat("p", parameters.size()),
                              at::ones({size}).requires_grad_(true));
    }
    FlatBufferOptions options;
    if (its.in_shared_memory) {
      options.allocate = [&group](int64_t numel,
                                  const at::TensorOptions& like) {
        return *NewGroupBuffer(group, numel, like);
      };
    }
    flat_ = MakeFlatBuffers(parameters, options);
    ReducerOptions reducer;
    reducer.buckets.limits = {its.bucket_bytes};
    reducer_ = std::make_unique<Reducer>(
        std::vector<FlatBuffer*>{flat_[0].get()}, group, reducer);
  }

  // Of this rank alone, in every element another one, and of different sizes,
  // so that the order of a sum shows.
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

absl::Status Compare(const Case& its, Communicator& group) {
  Replica replica(its, group);
  for (int step = 0; step < 3; ++step) {
    TANDEM_RETURN_IF_ERROR(replica.Reduce(/*scatters=*/false, step));
    const at::Tensor all = replica.flat().grads().clone();
    // Buckets are rebuilt after the first step, and gradients move.
    const at::Tensor local = replica.Local(step);
    TANDEM_RETURN_IF_ERROR(replica.Reduce(/*scatters=*/true, step));
    const at::Tensor found = replica.flat().grads();
    int64_t covered = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      const ElementSpan span = SpanOf(replica.flat(), {rank, group.size()});
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
    for (const Case& its : Cases()) {
      CommunicatorOptions options;
      options.backend = "shm";
      ExpectOk(RunThreadRanks(
          ranks, [&its](Communicator& group) { return Compare(its, group); },
          options));
    }
  }
}

}  // namespace
}  // namespace tandem::reduce_scatter_test
