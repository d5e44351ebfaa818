#include "models/modules/module_paths.h"

#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using Found = std::vector<ModuleAtPath>;

std::string Joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

std::string ChildNames(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& each : module.named_children()) names.push_back(each.key());
  return names.empty() ? "no children" : ShortList(names);
}

// The children that the name, or "*", is for.
absl::StatusOr<Found> Children(const ModuleAtPath& of, const std::string& name,
                               const std::string& pattern) {
  Found found;
  for (const auto& child : of.module->named_children()) {
    if (name != "*" && name != child.key()) continue;
    found.push_back({Joined(of.path, child.key()), child.value(), of.module});
  }
  if (!found.empty()) return found;
  return absl::InvalidArgumentError(absl::StrCat(
      "pattern '", pattern, "' matches nothing: ",
      of.path.empty() ? "the module" : absl::StrCat("'", of.path, "'"), " has ",
      ChildNames(*of.module)));
}

absl::StatusOr<Found> Matching(const ModuleAtPath& root,
                               const std::string& pattern) {
  Found found = {root};
  for (const auto name : absl::StrSplit(pattern, '.')) {
    Found next;
    for (const ModuleAtPath& each : found) {
      TANDEM_ASSIGN_OR_RETURN(const Found children,
                              Children(each, std::string(name), pattern));
      next.insert(next.end(), children.begin(), children.end());
    }
    found = std::move(next);
  }
  return found;
}

// What patterns say of a module's children.
struct Named {
  std::set<std::string> called, not_called;

  bool IsAround(const std::string& path) const {
    const std::string prefix = path + ".";
    const auto within = [&](const std::set<std::string>& paths) {
      const auto next = paths.lower_bound(prefix);
      return next != paths.end() && absl::StartsWith(*next, prefix);
    };
    return within(called) || within(not_called);
  }
};

absl::Status CheckNotCalled(const ModuleAtPath& each) {
  if (each.module->parameters().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'!", each.path, "' says that it is not called, but it has parameters, ",
      "which would not be trained"));
}

// Checks the modules around the named ones.
absl::Status CheckAround(const torch::nn::Module& module,
                         const std::string& path, const Named& named) {
  for (const auto& each : module.named_parameters(/*recurse=*/false)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", Joined(path, each.key()),
        "' is of a module around the layers, whose forward is not called: put "
        "it into a module of its own"));
  }
  for (const auto& child : module.named_children()) {
    const std::string child_path = Joined(path, child.key());
    if (named.called.count(child_path) + named.not_called.count(child_path) >
        0) {
      if (!named.IsAround(child_path)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "'", child_path, "' is named, and so is a module within it"));
    }
    if (!named.IsAround(child_path)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no pattern names '", child_path, "' (", child.value()->name(),
          "): name it where it is called, or '!", child_path,
          "' if it is not and has no parameters"));
    }
    TANDEM_RETURN_IF_ERROR(CheckAround(*child.value(), child_path, named));
  }
  return absl::OkStatus();
}

absl::Status CheckShared(const Found& modules) {
  std::map<const void*, std::string> owners;
  for (const ModuleAtPath& each : modules) {
    for (const auto& parameter : each.module->named_parameters()) {
      const std::string name = Joined(each.path, parameter.key());
      const auto [found, is_new] =
          owners.emplace(parameter.value().unsafeGetTensorImpl(), name);
      if (is_new) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "parameters '", found->second, "' and '", name,
          "' are one tensor, which layers of a module cannot share: give each ",
          "its own, or declare the tie in a LayerSpec (links.ties)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Found> ModulesAt(const std::shared_ptr<torch::nn::Module>& root,
                                const std::vector<std::string>& patterns) {
  if (root == nullptr) return absl::InvalidArgumentError("the module is null");
  Found modules;
  Named named;
  for (const std::string& pattern : patterns) {
    const bool is_called = !absl::StartsWith(pattern, "!");
    TANDEM_ASSIGN_OR_RETURN(
        const Found found,
        Matching({"", root, nullptr}, is_called ? pattern : pattern.substr(1)));
    for (const ModuleAtPath& each : found) {
      auto& paths = is_called ? named.called : named.not_called;
      if (!paths.insert(each.path).second) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", each.path, "' is named twice, but a layer is called once"));
      }
      if (is_called) {
        modules.push_back(each);
      } else {
        TANDEM_RETURN_IF_ERROR(CheckNotCalled(each));
      }
    }
  }
  if (modules.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no pattern names a module that is called; there are ",
                     ChildNames(*root)));
  }
  TANDEM_RETURN_IF_ERROR(CheckAround(*root, "", named));
  TANDEM_RETURN_IF_ERROR(CheckShared(modules));
  return modules;
}

}  // namespace tandem
