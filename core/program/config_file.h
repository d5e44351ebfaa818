// Config files: flags, one a line, for --config=FILE.
//
//   # a comment
//   model=gpt2
//   --batch_size = 512
//   drop_last=false
//   data_dir="/a path with spaces at its end "
//
// A line is name=value, with or without "--" before it; a switch may stand
// alone, or with "no" before it. Spaces around the name and the value do not
// count. A value in double quotes has C's escapes.

#ifndef TANDEM_CORE_PROGRAM_CONFIG_FILE_H_
#define TANDEM_CORE_PROGRAM_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct ConfigLine {
  int number = 0;        // from 1
  std::string argument;  // "--name=value", or "--name"
};

// The lines that say something. InvalidArgument for a file of more than a MiB,
// and, with "FILE:LINE: ", for a line that is no flag.
absl::StatusOr<std::vector<ConfigLine>> ReadConfigFile(const std::string& path);

// "name=value", as ReadConfigFile takes it.
std::string ConfigLineText(absl::string_view name, absl::string_view value);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_CONFIG_FILE_H_
