// TFRecord: the framing of records in TensorFlow's files, event files among
// them.

#ifndef TANDEM_CORE_TENSORBOARD_RECORD_H_
#define TANDEM_CORE_TENSORBOARD_RECORD_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem {

// Appends `data` as a record: its length (64 bits, little-endian), the masked
// CRC-32C of these eight bytes, the data, and the masked CRC-32C of that.
// TensorFlow: tensorflow/core/lib/io/record_writer.h.
void AppendRecord(absl::string_view data, std::string* records);

}  // namespace tandem

#endif  // TANDEM_CORE_TENSORBOARD_RECORD_H_
