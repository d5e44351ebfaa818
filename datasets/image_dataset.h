// Image data set: images of a source, transformed, with their classes.

#ifndef TANDEM_DATASETS_IMAGE_DATASET_H_
#define TANDEM_DATASETS_IMAGE_DATASET_H_

#include <cstdint>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/images/image_source.h"
#include "datasets/images/image_transform.h"

namespace tandem {

// Inputs: float32 [n, 3, transform.size(), transform.size()]. Targets: int64
// [n], classes. What a transform draws is a function of (seed, epoch, sample);
// `Get` gives epoch 0.
//
// Images are decoded and transformed in the thread that asks for them, a
// loader's worker. Errors name the sample and its file.
std::unique_ptr<Dataset> MakeImageDataset(
    std::unique_ptr<const ImageSource> source, const ImageTransform& transform,
    uint64_t seed);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGE_DATASET_H_
