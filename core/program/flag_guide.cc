#include "core/program/flag_guide.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/edit_distance.h"
#include "core/program/listed_flags.h"

namespace tandem {
namespace {

constexpr size_t kHelpWidth = 79;
constexpr size_t kColumn = 27;  // where the text of a usual flag begins
constexpr char kAll[] = "all";

// Appends lines of words behind `indent` spaces. The first one has `begin`
// before, on a line of its own where there is no room.
void AppendWrapped(const std::string& begin, absl::string_view text,
                   size_t indent, std::string& out) {
  std::string line = begin;
  if (line.size() + 2 > indent && !line.empty()) {
    absl::StrAppend(&out, line, "\n");
    line.clear();
  }
  line.resize(std::max(line.size(), indent), ' ');
  size_t words = 0;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (words > 0 && line.size() + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&out, line, "\n");
      line.assign(indent, ' ');
      words = 0;
    }
    absl::StrAppend(&line, words > 0 ? " " : "", word);
    ++words;
  }
  absl::StrAppend(&out, line, "\n");
}

// In one line: what would break it is escaped.
std::string ShownDefault(const absl::CommandLineFlag& flag) {
  const std::string value = flag.DefaultValue();
  const bool is_plain = std::none_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return is_plain ? value : absl::Utf8SafeCEscape(value);
}

void AppendInFull(const absl::CommandLineFlag& flag, std::string& out) {
  const std::string value = ShownDefault(flag);
  absl::StrAppend(&out, "  --", flag.Name(),
                  value.empty() ? "" : absl::StrCat(" (default: ", value, ")"),
                  "\n");
  AppendWrapped("", flag.Help(), 6, out);
}

// Up to the first full stop that ends a word.
std::string FirstSentence(absl::string_view help) {
  const size_t end = help.find(". ");
  return std::string(end == absl::string_view::npos ? help
                                                    : help.substr(0, end + 1));
}

void AppendInShort(const absl::CommandLineFlag& flag, std::string& out) {
  const std::string value = ShownDefault(flag);
  AppendWrapped(
      absl::StrCat("  --", flag.Name(), value.empty() ? "" : "=", value),
      FirstSentence(flag.Help()), kColumn, out);
}

void AppendOptions(std::string& out) {
  for (const CommandOption& each : CommandOptions()) {
    AppendWrapped(absl::StrCat("  ", each.form), each.text, kColumn, out);
  }
  AppendWrapped("", "Hyphens may stand for underscores.", 0, out);
}

// "Steps and batches": "steps_and_batches".
std::string Key(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name),
                             {{" ", "_"}, {"-", "_"}});
}

std::vector<std::string> GroupKeys(const std::vector<FlagGroup>& groups) {
  std::vector<std::string> keys;
  for (const FlagGroup& group : groups) keys.push_back(Key(group.name));
  keys.push_back(kAll);
  return keys;
}

void AppendGroup(const FlagGroup& group, std::string& out) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  absl::StrAppend(&out, "\n", group.name, "\n");
  for (const GuidedFlag& each : group.flags) {
    AppendInFull(*flags.at(each.name), out);
  }
}

// By the file that defines them.
std::string HelpByFile(const FlagGuide& guide) {
  std::map<std::string, std::vector<const absl::CommandLineFlag*>> files;
  for (const auto& [name, flag] : ListedFlags()) {
    files[ShortFile(flag->Filename())].push_back(flag);
  }
  std::string out = absl::StrCat(guide.usage, "\n");
  for (const auto& [file, flags] : files) {
    absl::StrAppend(&out, "\nFlags of ", file, ":\n");
    for (const absl::CommandLineFlag* flag : flags) AppendInFull(*flag, out);
  }
  absl::StrAppend(&out, "\n");
  AppendOptions(out);
  return out;
}

std::string HelpOnAll(const FlagGuide& guide) {
  if (guide.groups.empty()) return HelpByFile(guide);
  std::string out = absl::StrCat(guide.usage, "\n");
  for (const FlagGroup& group : AllGroups(guide)) AppendGroup(group, out);
  absl::StrAppend(&out, "\n");
  AppendOptions(out);
  return out;
}

std::string HelpOnGroup(const FlagGroup& group) {
  std::string out;
  AppendGroup(group, out);
  return out.substr(1);
}

std::string HelpOnFlag(const absl::CommandLineFlag& flag,
                       const std::vector<FlagGroup>& groups) {
  std::string out;
  AppendInFull(flag, out);
  for (const FlagGroup& group : groups) {
    for (const GuidedFlag& each : group.flags) {
      if (each.name != flag.Name()) continue;
      absl::StrAppend(&out, "\nMore of the same: --help=", Key(group.name),
                      "\n");
    }
  }
  return out;
}

absl::Status UnknownTopic(const FlagGuide& guide, absl::string_view topic,
                          const std::vector<FlagGroup>& groups) {
  for (const OtherFlagName& each : guide.other_names) {
    if (each.name != topic) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--help=", topic, ": no flag: ", each.advice));
  }
  std::vector<std::string> names = GroupKeys(groups);
  for (const auto& [name, flag] : ListedFlags()) names.push_back(name);
  const std::string nearest = NearestName(topic, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "--help=", topic, ": no group of flags, and no flag",
      nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
      nearest.empty() ? ". " : " ", "Known groups: ",
      NamesNear(topic, GroupKeys(groups), "--help lists all")));
}

}  // namespace

FlagGroup UsualGroup(absl::string_view name,
                     const std::vector<std::string>& flags) {
  FlagGroup group = {std::string(name), {}};
  for (const std::string& each : flags) group.flags.push_back({each, true});
  return group;
}

void AddGroup(const FlagGroup& more, std::vector<FlagGroup>* groups) {
  for (FlagGroup& each : *groups) {
    if (each.name != more.name) continue;
    each.flags.insert(each.flags.end(), more.flags.begin(), more.flags.end());
    return;
  }
  groups->push_back(more);
}

void SetValues(absl::string_view flag, const std::vector<std::string>& values,
               std::vector<FlagGroup>* groups) {
  for (FlagGroup& group : *groups) {
    for (GuidedFlag& each : group.flags) {
      if (each.name != flag) continue;
      each.values = values;
      return;
    }
  }
  LOG(FATAL) << "no group has --" << flag;
}

std::vector<FlagGroup> AllGroups(const FlagGuide& guide) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  std::set<std::string> left;
  for (const auto& [name, flag] : flags) left.insert(name);
  std::vector<FlagGroup> groups;
  for (const FlagGroup& group : guide.groups) {
    FlagGroup there = {group.name, {}};
    for (const GuidedFlag& each : group.flags) {
      if (left.erase(each.name) > 0) there.flags.push_back(each);
    }
    if (!there.flags.empty()) groups.push_back(std::move(there));
  }
  if (left.empty()) return groups;
  AddGroup(UsualGroup("Others", {left.begin(), left.end()}), &groups);
  return groups;
}

std::string HelpText(const FlagGuide& guide) {
  if (guide.groups.empty()) return HelpByFile(guide);
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  const std::vector<FlagGroup> groups = AllGroups(guide);
  std::string out = absl::StrCat(guide.usage, "\n");
  AppendWrapped("",
                absl::StrCat("The usual ones of ", flags.size(),
                             " flags, with their defaults. --help=all: every "
                             "one. --help=FLAG: one in full. --help=GROUP: all "
                             "of a group: ",
                             absl::StrJoin(GroupKeys(groups), ", "), "."),
                0, out);
  for (const FlagGroup& group : groups) {
    std::string usual;
    for (const GuidedFlag& each : group.flags) {
      if (each.is_usual) AppendInShort(*flags.at(each.name), usual);
    }
    if (!usual.empty()) absl::StrAppend(&out, "\n", group.name, "\n", usual);
  }
  absl::StrAppend(&out, "\nWith any of them\n");
  AppendOptions(out);
  return out;
}

std::string HelpMarkdown(const FlagGuide& guide) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  const auto cell = [](const std::string& text) {
    return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}});
  };
  std::string out;
  for (const FlagGroup& group : AllGroups(guide)) {
    absl::StrAppend(&out, out.empty() ? "" : "\n", "## ", group.name,
                    "\n\n| flag | default | |\n|---|---|---|\n");
    for (const GuidedFlag& each : group.flags) {
      const absl::CommandLineFlag& flag = *flags.at(each.name);
      const std::string value = ShownDefault(flag);
      const std::string name = absl::StrCat("`--", each.name, "`");
      absl::StrAppend(&out, "| ", each.is_usual ? "**" + name + "**" : name,
                      " | ", value.empty() ? "" : "`" + cell(value) + "`",
                      " | ", cell(flag.Help()), " |\n");
    }
  }
  return out;
}

absl::StatusOr<std::string> HelpOnTopic(const FlagGuide& guide,
                                        absl::string_view topic) {
  const std::vector<FlagGroup> groups =
      guide.groups.empty() ? std::vector<FlagGroup>() : AllGroups(guide);
  // --help=--name is a flag, whatever groups there are.
  const bool is_flag = absl::ConsumePrefix(&topic, "--");
  const std::string key = Key(topic);
  if (key == kAll && !is_flag) return HelpOnAll(guide);
  if (key == "markdown" && !is_flag) return HelpMarkdown(guide);
  const auto group_of = [&](const auto& fits) {
    return is_flag ? groups.end()
                   : std::find_if(groups.begin(), groups.end(),
                                  [&](const FlagGroup& group) {
                                    return fits(Key(group.name));
                                  });
  };
  auto group = group_of([&](const std::string& name) { return name == key; });
  if (group != groups.end()) return HelpOnGroup(*group);
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  const auto flag = flags.find(key);
  if (flag != flags.end()) return HelpOnFlag(*flag->second, groups);
  group = group_of([&](const std::string& name) {
    return !key.empty() && absl::StartsWith(name, key);
  });
  if (group != groups.end()) return HelpOnGroup(*group);
  return UnknownTopic(guide, topic, groups);
}

}  // namespace tandem
