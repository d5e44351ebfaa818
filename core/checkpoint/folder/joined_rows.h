// Joined rows: what a rank writes of weights that its model has in parts, as
// slices of these weights.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_JOINED_ROWS_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_JOINED_ROWS_H_

#include <map>
#include <string>

#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/row_parts.h"

namespace tandem {

struct JoinedState {
  StatePart part;
  std::map<std::string, std::string> tensor_of_slice;  // FolderSave's
};

// Copies nothing: tensors alias those of `part`, which are contiguous where
// they are a weight's parts.
JoinedState JoinRows(const StatePart& part, const RowParts& parts);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_JOINED_ROWS_H_
