#include "datasets/images/image_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kMostSide = 65536;

absl::Status CheckAugment(const ImageOptions& options) {
  const std::string given =
      absl::StrCat("augment=", absl::StrJoin(options.augment, ","));
  for (auto each = options.augment.begin(); each != options.augment.end();
       ++each) {
    if (*each != kRandomResizedCrop && *each != kRandomCrop && *each != kFlip) {
      return absl::InvalidArgumentError(
          absl::StrCat(given, ": '", *each,
                       "' is not known; there are random_resized_crop, "
                       "random_crop and flip"));
    }
    if (std::find(options.augment.begin(), each, *each) != each) {
      return absl::InvalidArgumentError(
          absl::StrCat(given, ": ", *each, " comes twice"));
    }
  }
  if (!Augments(options, kRandomResizedCrop) ||
      !Augments(options, kRandomCrop)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      given,
      ": random_resized_crop and random_crop both choose what part of "
      "an image is seen: leave one out"));
}

absl::Status CheckChannels(const char* name, const std::vector<double>& given,
                           bool above_zero) {
  if (given.empty()) return absl::OkStatus();
  const bool fits = std::all_of(given.begin(), given.end(), [&](double each) {
    return std::isfinite(each) && (!above_zero || each > 0);
  });
  if (given.size() == 3 && fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, "=", absl::StrJoin(given, ","), ": expected three numbers",
      above_zero ? " above 0" : "", ", of red, green and blue from 0 to 1"));
}

}  // namespace

bool Augments(const ImageOptions& options, absl::string_view augmentation) {
  return std::find(options.augment.begin(), options.augment.end(),
                   augmentation) != options.augment.end();
}

ImageOptions ImageNetOptions() {
  return {224, 256, {}, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}

ImageOptions Cifar10Options() {
  return {32, 32, {}, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
}

ImageOptions Cifar100Options() {
  return {32, 32, {}, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}};
}

absl::Status CheckImageOptions(const ImageOptions& options) {
  for (const auto& [name, given] :
       {std::pair("image_size", options.size),
        std::pair("image_resize", options.resize)}) {
    if (given >= 0 && given <= kMostSide) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", given, ": expected up to ", kMostSide,
                     " pixels, or 0 for what is usual"));
  }
  if (options.resize > 0 && options.size > options.resize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image_resize=", options.resize, ": no crop of image_size=",
        options.size, " fits into that: expected as much at least"));
  }
  TANDEM_RETURN_IF_ERROR(CheckAugment(options));
  TANDEM_RETURN_IF_ERROR(
      CheckChannels("image_mean", options.mean, /*above_zero=*/false));
  return CheckChannels("image_std", options.std, /*above_zero=*/true);
}

}  // namespace tandem
