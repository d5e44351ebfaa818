#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/stored_folder.h"

namespace tandem::joined_rows_test {
namespace {

RowParts Parts() {
  return {{"head.0.weight", {"head.weight", 0, 3, 5}},
          {"head.1.weight", {"head.weight", 3, 2, 5}}};
}

at::Tensor Whole(double first) {
  return at::arange(first, first + 10).view({5, 2});
}

// The parts' weights and a state of them, of which a rank may have a slice.
StatePart Held() {
  StatePart part;
  part.tensors = {
      {"head.1.weight", Whole(0).narrow(0, 3, 2)},
      {"head.0.weight", Whole(0).narrow(0, 0, 3)},
      {"body.weight", Whole(50)},
      {"optimizer.head.0.weight.step", at::scalar_tensor(4)},
      {"optimizer.head.1.weight.step", at::scalar_tensor(4)},
      {"optimizer.head.0.weight.exp_avg", Whole(20).narrow(0, 0, 3)},
      {"optimizer.head.1.weight.exp_avg",
       Whole(20).view({-1}).narrow(0, 6, 4)}};
  part.slices["optimizer.head.1.weight.exp_avg"] = {{2, 2}, {2, 1}, 0};
  return part;
}

TEST(JoinedRowsTest, ACheckpointHasWholeWeights) {
  const JoinedState joined = JoinRows(Held(), Parts());
  FolderSave save;
  save.path = testing::TempDir() + "/joined_rows";
  save.metadata = CheckpointMetadata(TrainingProgress());
  save.tensor_of_slice = joined.tensor_of_slice;
  ASSERT_TRUE(SaveFolder(save, joined.part).ok());
  const auto stored = OpenCheckpointAt(save.path);
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->model.size(), 2u);
  ASSERT_EQ(stored->optimizer.size(), 2u);
  std::map<std::string, at::Tensor> found;
  for (const StoredTensors* kind : {&stored->model, &stored->optimizer}) {
    for (const StoredTensor& each : *kind) {
      EXPECT_TRUE(Verify(each).ok());
      const auto values = each.read();
      ASSERT_TRUE(values.ok()) << values.status();
      found[each.info.name] = *values;
    }
  }
  EXPECT_TRUE(found["head.weight"].equal(Whole(0)));
  EXPECT_TRUE(found["body.weight"].equal(Whole(50)));
  EXPECT_TRUE(found["head.weight.exp_avg"].equal(Whole(20)));
  EXPECT_EQ(found["head.weight.step"].dim(), 0);
}

TEST(JoinedRowsTest, ASliceOfAPartIsOneOfTheWeight) {
  StatePart part;
  const std::string name = "optimizer.head.1.weight.exp_avg";
  part.tensors = {{name, at::arange(3.)}};
  part.slices[name] = {{2, 2}, {2, 1}, 1};
  const JoinedState joined = JoinRows(part, Parts());
  const TensorSlice& slice = joined.part.slices.at(name);
  EXPECT_EQ(slice.begin, 3 * 2 + 1);
  EXPECT_EQ(slice.sizes, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(joined.tensor_of_slice.at(name), "optimizer.head.weight.exp_avg");
}

}  // namespace
}  // namespace tandem::joined_rows_test
