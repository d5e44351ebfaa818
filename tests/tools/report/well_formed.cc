#include "tests/tools/report/well_formed.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

bool IsReference(absl::string_view text) {
  for (const char* known : {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"}) {
    if (absl::StartsWith(text, known)) return true;
  }
  return false;
}

class Checker {
 public:
  explicit Checker(absl::string_view text) : rest_(text) {}

  std::string Error() {
    absl::ConsumePrefix(&rest_, "<!DOCTYPE html>\n");
    while (error_.empty() && !rest_.empty()) {
      rest_.front() == '<' ? TakeTag() : TakeText('<');
    }
    if (error_.empty() && !open_.empty()) Fail("not ended: " + open_.back());
    if (error_.empty() && roots_ != 1) Fail(absl::StrCat(roots_, " roots"));
    return error_;
  }

 private:
  void Fail(const std::string& what) {
    if (error_.empty()) {
      error_ = absl::StrCat(what, " at: ", rest_.substr(0, 60));
    }
  }

  // Up to `end`, of which there must be one unless it is the end of all.
  void TakeText(char end) {
    while (!rest_.empty() && rest_.front() != end) {
      const char next = rest_.front();
      if (next == '<') return Fail("< in a text");
      if (next == '&' && !IsReference(rest_)) return Fail("a bare &");
      if (absl::ascii_iscntrl(static_cast<unsigned char>(next)) &&
          next != '\n') {
        return Fail("a control character");
      }
      rest_.remove_prefix(1);
    }
  }

  std::string TakeName() {
    size_t size = 0;
    while (size < rest_.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(rest_[size])) ||
            rest_[size] == '-' || rest_[size] == ':')) {
      ++size;
    }
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    if (name.empty()) Fail("no name");
    return name;
  }

  void TakeTag() {
    if (absl::ConsumePrefix(&rest_, "</")) {
      const std::string name = TakeName();
      if (open_.empty() || open_.back() != name) {
        return Fail(absl::StrCat("</", name, "> ends ",
                                 open_.empty() ? "nothing" : open_.back()));
      }
      open_.pop_back();
      if (!absl::ConsumePrefix(&rest_, ">")) Fail("no >");
      return;
    }
    rest_.remove_prefix(1);
    const std::string name = TakeName();
    if (open_.empty()) ++roots_;
    std::set<std::string> attributes;
    while (error_.empty() && absl::ConsumePrefix(&rest_, " ")) {
      if (!attributes.insert(TakeName()).second) return Fail("twice");
      if (!absl::ConsumePrefix(&rest_, "=\"")) return Fail("no quote");
      TakeText('"');
      if (!absl::ConsumePrefix(&rest_, "\"")) return Fail("no quote");
    }
    if (absl::ConsumePrefix(&rest_, "/>")) return;
    if (!absl::ConsumePrefix(&rest_, ">")) return Fail("no >");
    open_.push_back(name);
  }

  absl::string_view rest_;
  std::vector<std::string> open_;
  int roots_ = 0;
  std::string error_;
};

}  // namespace

std::string MarkupError(absl::string_view text) {
  return Checker(text).Error();
}

}  // namespace tandem
