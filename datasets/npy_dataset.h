// NPY data set: samples and their targets from arrays that numpy has saved.

#ifndef TANDEM_DATASETS_NPY_DATASET_H_
#define TANDEM_DATASETS_NPY_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/dataset.h"

namespace tandem {

struct NpyDatasetOptions {
  // The folder of train_x.npy, train_y.npy, test_x.npy and test_y.npy.
  std::string folder;
  Split split = Split::kTrain;
  // How many tokens there are, where inputs are tokens; 0: as many as the
  // greatest number in the files says.
  int64_t vocabulary = 0;
};

// torch.utils.data.TensorDataset of two arrays, of which only what is asked for
// is read. Row i of x is sample i, row i of y its target.
//
// Inputs: float32 [n, ...] of x in u1, f2, f4 or f8 (u1 as 0 to 255), or int64
// [n, ...], tokens, of x in i4 or i8. Targets: int64 of y in u1, i4 or i8: [n],
// class numbers, or, of tokens, of x's shape as well. There are as many classes
// as the greatest number in both sets' y says. Test arrays without rows are a
// test set of size 0.
//
// NpyFile's errors; InvalidArgument, with the files, for rows of different
// numbers or shapes, targets that are no whole numbers, of another shape or
// below 0, and a vocabulary where inputs are no tokens; DataLoss, when they are
// read, for tokens that are not in the vocabulary.
absl::StatusOr<std::unique_ptr<Dataset>> OpenNpyDataset(
    const NpyDatasetOptions& options);

}  // namespace tandem

#endif  // TANDEM_DATASETS_NPY_DATASET_H_
