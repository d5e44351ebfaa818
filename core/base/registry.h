// Registry of named entries (makers of models, of data sets): those that are
// built in, and those that a program adds.

#ifndef TANDEM_CORE_BASE_REGISTRY_H_
#define TANDEM_CORE_BASE_REGISTRY_H_

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {

// To be made when it is first asked for, so that there is no order of
// initialisation to mind. Not thread-safe while entries are added.
template <typename Entry>
class Registry {
 public:
  // `kind`: what one is, for messages ("model").
  Registry(std::string kind, std::map<std::string, Entry> built_in)
      : kind_(std::move(kind)), built_in_(std::move(built_in)) {}

  // AlreadyExists for a name that there is.
  absl::Status Add(const std::string& name, Entry entry) {
    if (Find(name) != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "cannot register ", kind_, " '", name,
          "': there is one of that name already; choose another name"));
    }
    added_.emplace(name, std::move(entry));
    return absl::OkStatus();
  }

  // Null: there is none of that name.
  const Entry* Find(const std::string& name) const {
    for (const auto* entries : {&built_in_, &added_}) {
      const auto found = entries->find(name);
      if (found != entries->end()) return &found->second;
    }
    return nullptr;
  }

  // In alphabetical order: all, and those that were added.
  std::vector<std::string> Names() const {
    std::vector<std::string> names = Added();
    for (const auto& item : built_in_) names.push_back(item.first);
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> Added() const {
    std::vector<std::string> names;
    for (const auto& item : added_) names.push_back(item.first);
    return names;
  }

 private:
  const std::string kind_;
  const std::map<std::string, Entry> built_in_;
  std::map<std::string, Entry> added_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_REGISTRY_H_
