// Jobs whose replicas share what they train, in the laboratory of strategies.
// For tests.

#ifndef TANDEM_TESTS_PARALLEL_FULLY_SHARDED_SHARDED_JOBS_H_
#define TANDEM_TESTS_PARALLEL_FULLY_SHARDED_SHARDED_JOBS_H_

#include <cstdint>
#include <string>

#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

inline constexpr int64_t kShardedBatch = 24;  // of all replicas

struct ShardedVariant {
  std::string name;
  std::string model;
  LabChange change;
  LabTolerance tolerance = {};
};

inline LabJob ShardedJob(const ShardedVariant& variant, Sharding sharding,
                         int steps = 4) {
  LabJob job = ModelJob(variant.model, kShardedBatch, steps,
                        [=](MeshStrategyOptions& options) {
                          options.shard = sharding;
                          options.shard_min_num_params = 1;
                          variant.change(options);
                        });
  job.test = 7;
  return job;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_FULLY_SHARDED_SHARDED_JOBS_H_
