#include "parallel/strategy/stage/trait_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/testing/statuses.h"

namespace tandem::trait_checks_test {
namespace {

Mesh MeshOf(int data, int pipe) { return *Mesh::Create(data * pipe, pipe); }

TraitsByName Reduced(const std::vector<std::string>& axes) {
  ParameterTraits traits;
  traits.reduce_axes = axes;
  return {{"fc.weight", traits}};
}

TraitsByName Sharded(const std::string& axis) {
  ParameterTraits traits;
  traits.shard = ParameterShard{axis, 0};
  return {{"fc.weight", traits}};
}

TEST(TraitChecksTest, TakeWhatTheMeshCanDo) {
  for (const Mesh& mesh : {MeshOf(1, 1), MeshOf(2, 1), MeshOf(2, 3)}) {
    EXPECT_TRUE(CheckTraits({}, mesh).ok());
    EXPECT_TRUE(CheckTraits(Reduced({"data"}), mesh).ok());
    EXPECT_TRUE(CheckTraits(Reduced({}), mesh).ok());
  }
  // Along an axis of one rank nothing is cut.
  EXPECT_TRUE(CheckTraits(Sharded("data"), MeshOf(1, 2)).ok());
}

TEST(TraitChecksTest, RefuseByNameWhatItCannot) {
  const absl::Status unknown = CheckTraits(Reduced({"dta"}), MeshOf(2, 1));
  EXPECT_THAT(unknown, InvalidArgument("parameter fc.weight", "'dta'",
                                       "data 2 x pipe 1"));
  const absl::Status pipe =
      CheckTraits(Reduced({"data", "pipe"}), MeshOf(1, 2));
  EXPECT_THAT(pipe, InvalidArgument("fc.weight"));
  const absl::Status sharded = CheckTraits(Sharded("data"), MeshOf(3, 1));
  EXPECT_THAT(sharded,
              StatusIs(absl::StatusCode::kUnimplemented,
                       "fc.weight is sharded along data, which has 3 ranks"));
}

TEST(TraitChecksTest, SomeOptionsNeedEveryGradientReduced) {
  EXPECT_TRUE(CheckAllAreReduced(Reduced({"data"}), MeshOf(2, 1), "x").ok());
  EXPECT_TRUE(CheckAllAreReduced(Reduced({}), MeshOf(1, 2), "x").ok());
  EXPECT_THAT(CheckAllAreReduced(Reduced({}), MeshOf(2, 1), "clip_norm"),
              Says("fc.weight", "clip_norm"));
}

TEST(TraitChecksTest, SpecsNameTheirParametersInFull) {
  LayerSpec spec;
  spec.name = "fc";
  spec.traits = {{"weight", ParameterTraits()}};
  EXPECT_EQ(NamedTraits(LayerSpecs{spec}).count("fc.weight"), 1u);
}

}  // namespace
}  // namespace tandem::trait_checks_test
