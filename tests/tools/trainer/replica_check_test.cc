#include "tools/trainer/replica_check.h"

#include <ATen/Tensor.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "core/checkpoint/fingerprint.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Verdict(const std::vector<std::string>& fingerprints, int pipe) {
  const Mesh mesh =
      Mesh::Create(static_cast<int>(fingerprints.size()), pipe).value();
  const absl::Status status = CompareReplicas(fingerprints, mesh, 40);
  EXPECT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
  return std::string(status.message());
}

TEST(ReplicaCheckTest, WhatIsAlikePasses) {
  EXPECT_EQ(Verdict({"a"}, 1), "");
  EXPECT_EQ(Verdict({"a", "a", "a", "a", "a", "a", "a"}, 1), "");
  // Two stages differ, as they should.
  EXPECT_EQ(Verdict({"a", "b", "a", "b"}, 2), "");
}

TEST(ReplicaCheckTest, TheMinorityIsNamed) {
  EXPECT_THAT(Verdict({"a", "a", "b", "a", "a", "a", "a"}, 1),
              AllOf(HasSubstr("replicas differ after step 40: rank 2 has "
                              "drifted from ranks 0, 1, 3, 4, 5, 6,"),
                    Not(HasSubstr("majority"))));
  EXPECT_THAT(Verdict({"x", "a", "a", "y", "a"}, 1),
              HasSubstr("ranks 0, 3 have drifted from ranks 1, 2, 4"));
}

TEST(ReplicaCheckTest, TwoCannotSayWhoIsRight) {
  EXPECT_THAT(Verdict({"a", "b"}, 1),
              HasSubstr("ranks 0, 1 have different parameters, and no majority "
                        "says whose are right"));
}

TEST(ReplicaCheckTest, EachPlaceOfTheReplicasIsComparedByItself) {
  EXPECT_THAT(Verdict({"a", "b", "a", "c", "a", "b"}, 2),
              AllOf(HasSubstr("rank 3 has drifted from ranks 1, 5"),
                    Not(HasSubstr("rank 0"))));
}

TEST(ReplicaCheckTest, AFlippedBitShows) {
  const NamedTensors parameters = {{"w", at::ones({3, 2})},
                                   {"b", at::ones({2})}};
  const std::string before = WeightsSha256(parameters);
  FlipBit(parameters);
  EXPECT_NE(WeightsSha256(parameters), before);
  EXPECT_FLOAT_EQ(parameters[0].second[0][0].item<float>(), 1);
  FlipBit(parameters);
  EXPECT_EQ(WeightsSha256(parameters), before);
  FlipBit({});
}

}  // namespace
}  // namespace tandem
