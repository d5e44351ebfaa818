#include "core/program/completion.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "core/program/listed_flags.h"

namespace tandem {
namespace {

// A flag as shells are told of it.
struct Completed {
  std::string name;
  std::string text;
  std::vector<std::string> values;
  bool is_switch = false;
  bool is_path = false;
};

std::vector<Completed> CompletedFlags(const FlagGuide& guide) {
  const std::map<std::string, absl::CommandLineFlag*> flags = ListedFlags();
  const std::vector<FlagGroup> groups = AllGroups(guide);
  std::vector<Completed> all;
  std::vector<std::string> topics = {"all"};
  for (const FlagGroup& group : groups) {
    topics.push_back(
        absl::StrReplaceAll(absl::AsciiStrToLower(group.name), {{" ", "_"}}));
    for (const GuidedFlag& each : group.flags) {
      const absl::CommandLineFlag& flag = *flags.at(each.name);
      all.push_back({each.name, flag.Help(), each.values, flag.IsOfType<bool>(),
                     each.is_path});
    }
  }
  const std::string config = flags.count("config") > 0 ? "flagfile" : "config";
  all.push_back({config, "Flags from a file", {}, false, /*is_path=*/true});
  all.push_back({"help", "Flags of a group, or one flag, in full", topics});
  all.push_back({"print_config", "Print the flags and stop", {"all"}});
  all.push_back({"completion", "Print a script for a shell", {"bash", "zsh"}});
  return all;
}

// For a shell: within single quotes.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string FunctionName(absl::string_view program) {
  std::string name = absl::StrCat("_", program);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !absl::ascii_isalnum(static_cast<unsigned char>(c));
      },
      '_');
  return name;
}

// What is typed to the left of the cursor is one word, or, as "=" separates
// words for bash, the flag, "=" and the beginning of a value.
constexpr char kBashBody[] = R"(
  local word=${COMP_WORDS[COMP_CWORD]} flag= before=
  local left=${COMP_WORDS[COMP_CWORD-1]} values= files=
  if [[ $word == = ]]; then
    flag=$left word=
  elif [[ $left == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $word == --*=* ]]; then
    flag=${word%%=*} before=$flag= word=${word#*=}
  fi
  COMPREPLY=()
  if [[ -z $flag ]]; then
    [[ $word == --* ]] && word=--$(tr - _ <<<"${word#--}")
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
  fi
  flag=--$(tr - _ <<<"${flag#--}")
)";

std::string BashScript(const std::vector<Completed>& flags,
                       absl::string_view program) {
  std::vector<std::string> names;
  std::string cases;
  for (const Completed& each : flags) {
    const std::string flag = absl::StrCat("--", each.name);
    if (each.is_switch) {
      names.push_back(flag);
      names.push_back(absl::StrCat("--no", each.name));
      absl::StrAppend(&cases, "    ", flag, ") values='true false' ;;\n");
      continue;
    }
    names.push_back(absl::StrCat(flag, "="));
    if (each.is_path) {
      absl::StrAppend(&cases, "    ", flag, ") files=1 ;;\n");
    }
    if (each.values.empty()) continue;
    absl::StrAppend(&cases, "    ", flag,
                    ") values=", Quoted(absl::StrJoin(each.values, " ")),
                    " ;;\n");
  }
  const std::string function = FunctionName(program);
  return absl::StrCat(
      function, "() {\n  local flags=", Quoted(absl::StrJoin(names, " ")),
      kBashBody, "  case $flag in\n", cases,
      "  esac\n"
      "  if [[ -n $files ]]; then\n"
      "    compopt -o filenames\n"
      "    local IFS=$'\\n'\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -P \"$before\" -W \"$values\" -- \"$word\"))\n"
      "  fi\n"
      "}\n"
      "complete -F ",
      function, " ", Quoted(program), "\n");
}

// Within the brackets of a specification of _arguments.
std::string ZshText(absl::string_view text) {
  const size_t end = text.find(". ");
  return absl::StrReplaceAll(
      text.substr(0, end),
      {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshScript(const std::vector<Completed>& flags,
                      absl::string_view program) {
  const std::string function = FunctionName(program);
  std::string script =
      absl::StrCat("#compdef ", program, "\n", function, "() {\n  _arguments");
  const auto add = [&](const std::string& specification) {
    absl::StrAppend(&script, " \\\n    ", Quoted(specification));
  };
  for (const Completed& each : flags) {
    const std::string text = absl::StrCat("[", ZshText(each.text), "]");
    if (each.is_switch) {
      add(absl::StrCat("--", each.name, text));
      add(absl::StrCat("--no", each.name, text));
      continue;
    }
    const std::string action =
        each.is_path ? "_files"
        : each.values.empty()
            ? ""
            : absl::StrCat("(", absl::StrJoin(each.values, " "), ")");
    add(absl::StrCat("--", each.name, "=", text, ":value:", action));
  }
  // A file of $fpath, whatever its name is, is called at once; what is
  // evaluated is made known.
  return absl::StrCat(
      script, "\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  ",
      function, " \"$@\"\nelse\n  compdef ", function, " ", Quoted(program),
      "\nfi\n");
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const FlagGuide& guide,
                                             absl::string_view program,
                                             absl::string_view shell) {
  const std::vector<Completed> flags = CompletedFlags(guide);
  if (shell == "bash") return BashScript(flags, program);
  if (shell == "zsh") return ZshScript(flags, program);
  return absl::InvalidArgumentError(
      absl::StrCat("--completion=", shell, ": known shells: bash, zsh"));
}

}  // namespace tandem
