// Environment variables as a value, so that what follows from them can be
// computed and tested without touching the process.

#ifndef TANDEM_CORE_BASE_ENVIRONMENT_H_
#define TANDEM_CORE_BASE_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string> variables);

  // A copy of this process's environment. Must not run while another thread
  // calls setenv.
  static Environment OfProcess();

  // Reads lines of the form NAME=value; empty lines and lines that begin with
  // '#' do not count. InvalidArgument for any other line.
  static absl::StatusOr<Environment> Parse(absl::string_view text);

  // The variable's value; nothing when it is not set or empty (PyTorch treats
  // the two alike).
  std::optional<std::string> Get(const std::string& name) const;

  // The same as a decimal integer. InvalidArgument, naming the variable and
  // its text, when it is something else.
  absl::StatusOr<std::optional<int>> GetInt(const std::string& name) const;

  void Set(const std::string& name, const std::string& value);

  // "NAME=value" for each variable, sorted by name, as exec wants them.
  std::vector<std::string> ToStrings() const;

 private:
  std::map<std::string, std::string> variables_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_ENVIRONMENT_H_
