#include "parallel/ddp/ready_marks.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"

namespace tandem {

ReadyMarks::ReadyMarks(std::vector<std::string> names, bool static_graph)
    : names_(std::move(names)),
      static_graph_(static_graph),
      marks_(names_.size()),
      expected_(names_.size()),
      last_mark_(names_.size()) {
  for (size_t i = 0; i < names_.size(); ++i) expected_[i] = !names_[i].empty();
}

void ReadyMarks::Reset() {
  std::fill(marks_.begin(), marks_.end(), 0);
  std::fill(last_mark_.begin(), last_mark_.end(), 0);
  clock_ = 0;
}

absl::StatusOr<bool> ReadyMarks::Mark(int64_t position) {
  CHECK(position >= 0 && position < static_cast<int64_t>(names_.size()));
  const std::string& name = names_[position];
  CHECK(!name.empty()) << "parameter " << position << " is not trained";
  last_mark_[position] = ++clock_;
  const int marks = ++marks_[position];
  if (learning() && expected_[position] > 0) return false;
  if (marks <= expected_[position]) return marks == expected_[position];
  if (static_graph_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the graph changed under static_graph: the gradient of ", name,
        " was ready ", marks, " times in this backward and ",
        expected_[position],
        " times in the first; every step must use the same parameters as often,"
        " or static_graph must be off"));
  }
  if (expected_[position] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", name,
        " was used on no rank in the first step and is used now: under "
        "skip_all_reduce_unused_params the unused parameters must stay the "
        "same"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", name,
      " was marked ready twice in one backward, so part of its gradient came "
      "after it had been averaged. Likely causes: a part of the model that "
      "holds it runs several times under re-entrant activation checkpointing, "
      "or its gradient is computed by hand as well as by autograd. If every "
      "step does the same, set static_graph"));
}

void ReadyMarks::Learn() {
  expected_ = marks_;
  learned_ = true;
}

std::vector<int64_t> ReadyMarks::Unmarked() const {
  std::vector<int64_t> unmarked;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (expected_[i] > 0 && marks_[i] == 0) unmarked.push_back(i);
  }
  return unmarked;
}

std::vector<int64_t> ReadyMarks::Order() const {
  std::vector<int64_t> order;
  for (size_t i = names_.size(); i-- > 0;) {
    if (!names_[i].empty()) order.push_back(i);
  }
  const auto when = [this](int64_t position) {
    return marks_[position] > 0 ? last_mark_[position] : clock_ + 1;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return when(a) < when(b); });
  return order;
}

std::string ReadyMarks::Names(const std::vector<int64_t>& positions) const {
  std::vector<std::string> names;
  for (const int64_t position : positions) {
    names.push_back(absl::StrCat(names_[position], " (index ", position, ")"));
  }
  return ShortList(names, /*most=*/20);
}

absl::Status ReadyMarks::CheckAllMarked() const {
  const std::vector<int64_t> unmarked = Unmarked();
  if (unmarked.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      unmarked.size() == 1 ? "a parameter" : "parameters",
      " got no gradient in this backward: ", Names(unmarked),
      ". Either the loss does not depend on ",
      unmarked.size() == 1 ? "it" : "them",
      ": set find_unused_parameters; or the output of forward that does was "
      "left out of the loss"));
}

absl::Status ReadyMarks::CheckUnchanged() const {
  std::vector<int64_t> changed;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (marks_[i] != expected_[i]) changed.push_back(i);
  }
  if (changed.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the graph changed under static_graph: used in the first step and not, "
      "or less often, in this one: ",
      Names(changed),
      ". Every step must use the same parameters as often, "
      "or static_graph must be off"));
}

}  // namespace tandem
