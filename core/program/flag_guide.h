// Flag guide: what a program says of its flags beyond what each says itself:
// groups for --help, values for a shell's completion, and names that it does
// not have, with what to write instead.

#ifndef TANDEM_CORE_PROGRAM_FLAG_GUIDE_H_
#define TANDEM_CORE_PROGRAM_FLAG_GUIDE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct GuidedFlag {
  std::string name;
  bool is_usual = false;                 // --help shows it
  std::vector<std::string> values = {};  // that it takes; empty: any
  bool is_path = false;
};

struct FlagGroup {
  std::string name;  // "Learning rate": --help=learning_rate
  std::vector<GuidedFlag> flags;
};

// A name that is no flag: one that was, or one of another program.
struct OtherFlagName {
  std::string name;
  std::string advice;  // "write --learning_rate=RATE"
};

struct FlagGuide {
  std::string usage;  // what --help says above the flags
  // In the order in which --help shows them. Empty: flags are listed by the
  // file that defines them.
  std::vector<FlagGroup> groups = {};
  std::vector<OtherFlagName> other_names = {};
};

// A group in which every flag is usual.
FlagGroup UsualGroup(absl::string_view name,
                     const std::vector<std::string>& flags);

// Adds `more`'s flags to the group of the same name, or the group itself.
void AddGroup(const FlagGroup& more, std::vector<FlagGroup>* groups);

// Says which values a flag of the groups takes. Dies where it is in none.
void SetValues(absl::string_view flag, const std::vector<std::string>& values,
               std::vector<FlagGroup>* groups);

// The groups with every flag of this process: those that are in none are a last
// group, "Others", and are usual. A flag that does not exist is left out.
std::vector<FlagGroup> AllGroups(const FlagGuide& guide);

// What --help prints: the usual flags by group, a line or a few each; every
// flag where there are no groups. Lines have 79 characters at most, but for
// those of `usage`.
std::string HelpText(const FlagGuide& guide);

// What --help=TOPIC prints: "all", or a group, or a flag's name, in full; or
// "markdown".
// Upper case, hyphens and underscores do not matter, and a group's beginning
// will do. InvalidArgument, with the groups that are known, for another.
absl::StatusOr<std::string> HelpOnTopic(const FlagGuide& guide,
                                        absl::string_view topic);

// All flags as a page's tables, in Markdown: what --help=markdown prints. The
// usual ones are bold.
std::string HelpMarkdown(const FlagGuide& guide);

}  // namespace tandem

#endif  // TANDEM_CORE_PROGRAM_FLAG_GUIDE_H_
