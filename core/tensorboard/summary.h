// Summary: values of one step under their tags, as TensorBoard's protocol
// buffer of that name.

#ifndef TANDEM_CORE_TENSORBOARD_SUMMARY_H_
#define TANDEM_CORE_TENSORBOARD_SUMMARY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/tensorboard/histogram.h"

namespace tandem {

// A tag is a text in UTF-8 without zero bytes; where it has a "/", what stands
// before names the section in which TensorBoard shows it ("train/loss"). Errors
// are InvalidArgument: they name the tag, and nothing is added. Not
// thread-safe.
class Summary {
 public:
  // Written as a float32, as SummaryWriter.add_scalar does: a value beyond its
  // range becomes infinite. May be NaN or infinite.
  absl::Status AddScalar(absl::string_view tag, double value);

  // Markdown, in UTF-8. SummaryWriter.add_text, which calls the tag
  // TAG/text_summary.
  absl::Status AddText(absl::string_view tag, absl::string_view markdown);

  // The values of a tensor (histogram.h, with its errors), as
  // SummaryWriter.add_histogram does. Values that are not finite are counted
  // apart, where there are any, as the scalar TAG/nonfinite; where all are,
  // there is no histogram.
  absl::Status AddHistogram(absl::string_view tag, const at::Tensor& values);
  absl::Status AddHistogram(absl::string_view tag, const Histogram& histogram);

  // A file in PNG, of such a size in pixels: an error for another size than its
  // header has. SummaryWriter.add_image, which takes a tensor.
  absl::Status AddImage(absl::string_view tag, absl::string_view png,
                        int64_t height, int64_t width);

  bool empty() const { return message_.empty(); }
  // Serialized.
  const std::string& message() const { return message_; }

 private:
  absl::Status AddValue(absl::string_view tag, absl::string_view value);

  std::string message_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_TENSORBOARD_SUMMARY_H_
