// Image folder: files of images in folders that are named after their classes.

#ifndef TANDEM_DATASETS_IMAGES_IMAGE_FOLDER_H_
#define TANDEM_DATASETS_IMAGES_IMAGE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasets/images/image_source.h"

namespace tandem {

// torchvision.datasets.ImageFolder of data_dir/train, or, unless `train`, of
// data_dir/val, else data_dir/test, with its order: classes sorted by name, and
// the PNG and JPEG files of each (.png, .jpg, .jpeg, in letters of any size) by
// their folders within it, then by their names. Other files are left out.
// Symbolic links are followed.
//
// Files are listed when it is opened, and of each nothing is looked at but its
// size; they are decoded (core/image_codec) when they are asked for. A val
// without any entry is a test set of size 0.
//
// InvalidArgument for a folder without train and val or test in it, for classes
// that only one of the two has, for a class without a file, and, with its path,
// for a file without a byte and for folders that lead in a circle; else the
// errors of the file system.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageFolder(
    const std::string& data_dir, bool train);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IMAGES_IMAGE_FOLDER_H_
