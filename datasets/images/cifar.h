// CIFAR-10 and CIFAR-100: small images, in the "binary version" of their files.

#ifndef TANDEM_DATASETS_IMAGES_CIFAR_H_
#define TANDEM_DATASETS_IMAGES_CIFAR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/images/image_source.h"

namespace tandem {

inline constexpr int64_t kCifarSide = 32;

// One of the two data sets: its files, and what a record of them is: bytes of
// class numbers, of which the last one counts, then 32 x 32 bytes each of red,
// green and blue.
struct CifarFormat {
  const char* name;
  std::vector<const char*> train_files;
  const char* test_file;
  const char* names_file;  // names of the classes, one a line
  int64_t class_bytes;
  int64_t classes;
};

// data_batch_1.bin to data_batch_5.bin and test_batch.bin; 10 classes.
const CifarFormat& Cifar10();
// train.bin and test.bin; coarse and fine classes, of which the 100 fine ones
// count.
const CifarFormat& Cifar100();

// The images of the split's files in `data_dir`, in their order
// (torchvision.datasets.CIFAR10), which are read whole. Classes have names if
// their file is there.
//
// NotFound, with what is expected, for a file that is not there; DataLoss, with
// the file, for one that is not whole records or has none, and for a class that
// there is not; else the errors of the file system.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifar(
    const std::string& data_dir, const CifarFormat& format, bool train);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_CIFAR_H_
