// Stored folder: a checkpoint's folder to be read, each tensor from the files
// that have a piece of it.

#ifndef TANDEM_CORE_CHECKPOINT_FOLDER_STORED_FOLDER_H_
#define TANDEM_CORE_CHECKPOINT_FOLDER_STORED_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/manifest.h"

namespace tandem {

// Whether it has a manifest, whatever that is worth.
bool IsCheckpointFolder(const std::string& path);

// The manifest of a folder. NotFound where there is none; DataLoss, naming it,
// for one that is not what was written.
absl::StatusOr<Manifest> ReadManifest(const std::string& folder);

// Opens a checkpoint: a folder, or one file (OpenCheckpoint). Reads of a folder
// the manifest alone; a file of it is opened when a tensor in it is verified or
// read, and what others read stays unread. DataLoss, naming the file and the
// tensor, when a file is missing, is shorter or longer, is another one than was
// written, or when values are.
absl::StatusOr<StoredCheckpoint> OpenCheckpointAt(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_FOLDER_STORED_FOLDER_H_
