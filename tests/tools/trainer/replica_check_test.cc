#include "tools/trainer/replica_check.h"

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::replica_check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Verdict(const std::vector<std::string>& fingerprints, int pipe) {
  const Mesh mesh =
      Mesh::Create(static_cast<int>(fingerprints.size()), {.pipe = pipe})
          .value();
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

TEST(ReplicaCheckTest, TheFirstParameterThatDiffersIsNamed) {
  EXPECT_THAT(Verdict({"b 1\nw 2\n", "b 1\nw 2\n", "b 1\nw 3\n"}, 1),
              HasSubstr("rank 2 has drifted from ranks 0, 1, which are alike "
                        "(w). "));
  EXPECT_THAT(Verdict({"a 1\nb 1\nw 2\n", "a 2\nb 2\nw 3\n"}, 1),
              HasSubstr("(a, and 2 more parameters). "));
  EXPECT_THAT(Verdict({"a 1\nb 1\n", "a 2\nb 2\n"}, 1),
              HasSubstr("(a, and 1 more parameter). "));
}

// zlib.crc32(struct.pack("<3f", 0, 1, 2)), and that of no bytes.
TEST(ReplicaCheckTest, AFingerprintIsOfNamesInOrderAndBytes) {
  const NamedTensors parameters = {{"w", at::arange(3, at::kFloat)},
                                   {"b", at::ones({0})}};
  EXPECT_EQ(ReplicaFingerprint(parameters), "b 00000000\nw 30c8bc70\n");
  EXPECT_EQ(ReplicaFingerprint(
                {{"b", at::ones({0})},
                 {"w", at::arange(6, at::kFloat).slice(0, 0, 6, 2).div(2)}}),
            ReplicaFingerprint(parameters));
  EXPECT_EQ(ReplicaFingerprint({}), "");
}

TEST(ReplicaCheckTest, AFlippedBitShows) {
  const NamedTensors parameters = {{"w", at::ones({3, 2})},
                                   {"b", at::ones({2})}};
  const std::string before = ReplicaFingerprint(parameters);
  FlipBit(parameters);
  EXPECT_NE(ReplicaFingerprint(parameters), before);
  EXPECT_FLOAT_EQ(parameters[0].second[0][0].item<float>(), 1);
  FlipBit(parameters);
  EXPECT_EQ(ReplicaFingerprint(parameters), before);
  FlipBit({});
}

}  // namespace
}  // namespace tandem::replica_check_test
