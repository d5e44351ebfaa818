// The sampler against PyTorch's own indices.

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "datasets/distributed_sampler.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::distributed_sampler_table_test {
namespace {

using Indices = std::vector<int64_t>;

// The table that make_distributed_sampler_table.py wrote.
nlohmann::json Table() {
  std::ifstream file("tests/datasets/distributed_sampler_table.json");
  return nlohmann::json::parse(file);
}

// Python's seeds may be negative.
uint64_t Seed(const nlohmann::json& entry) {
  return entry["seed"].is_number_unsigned()
             ? entry["seed"].get<uint64_t>()
             : static_cast<uint64_t>(entry["seed"].get<int64_t>());
}

uint32_t Crc32(const Indices& indices) {
  return crc32(0, reinterpret_cast<const Bytef*>(indices.data()),
               indices.size() * sizeof(int64_t));
}

void ExpectSame(const Indices& indices, const nlohmann::json& expected) {
  if (expected.is_array()) {
    EXPECT_EQ(indices, expected.get<Indices>());
    return;
  }
  ASSERT_EQ(indices.size(), expected["count"].get<size_t>());
  const Indices first = expected["first"].get<Indices>();
  const Indices last = expected["last"].get<Indices>();
  EXPECT_EQ(Indices(indices.begin(), indices.begin() + first.size()), first);
  EXPECT_EQ(Indices(indices.end() - last.size(), indices.end()), last);
  EXPECT_EQ(Crc32(indices), expected["crc32"].get<uint32_t>());
}

TEST(DistributedSamplerTableTest, EqualsPyTorchsIndexForIndex) {
  const nlohmann::json table = Table();
  ASSERT_EQ(table.size(), 990);
  for (const nlohmann::json& entry : table) {
    for (const auto& [rank, expected] : entry["ranks"].items()) {
      SCOPED_TRACE("rank " + rank + " of " + entry.dump().substr(0, 110));
      DistributedSamplerOptions options;
      options.num_replicas = entry["num_replicas"];
      options.rank = std::stoll(rank);
      options.shuffle = entry["shuffle"];
      options.seed = Seed(entry);
      options.drop_last = entry["drop_last"];
      const auto created = DistributedSampler::Create(entry["length"], options);
      ASSERT_TRUE(created.ok()) << created.status();
      DistributedSampler* const sampler = created->get();
      sampler->set_epoch(entry["epoch"]);
      const Indices indices = sampler->Indices();
      EXPECT_EQ(indices.size(), sampler->num_samples());
      ExpectSame(indices, expected);
    }
  }
}

}  // namespace
}  // namespace tandem::distributed_sampler_table_test
