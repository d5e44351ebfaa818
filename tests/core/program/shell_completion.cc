#include "tests/core/program/shell_completion.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

// Below the folder where tests run, @zsh's and @zsh_common's files.
constexpr char kZsh[] = "../zsh/bin/zsh";
constexpr char kModules[] = "../zsh/usr/lib/x86_64-linux-gnu/zsh/5.9";
constexpr char kFunctions[] = "../zsh_common/usr/share/zsh/functions";

// Arguments: the script, and the words.
constexpr char kBashDriver[] = R"(source "$1"
shift
compopt() { :; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
registered=$(complete -p "$1") || exit
function=${registered#complete -F }
"${function%% *}"
printf '%s\n' "${COMPREPLY[@]}"
)";

// Argument: the line. It is typed to a shell with a terminal of its own, which
// ends with the completion; what that says is shown by a test that fails.
constexpr char kZshDriver[] = R"zsh(module_path=($ZSH_MODULES)
zmodload zsh/zpty || exit
zpty shell "$ZSH -d -i"
while zpty -r shell said && [[ $said != *ready* ]]; do
  print -ru2 -- "$said"
done
[[ $said == *ready* ]] || exit
zpty -n -w shell "$1"$'\t'
while zpty -r shell said; do print -ru2 -- "$said"; done
[[ -e $OFFERED ]]
)zsh";

// Read before the first prompt, from $ZDOTDIR.
constexpr char kZshEnvironment[] = "module_path=($ZSH_MODULES)\n";
constexpr char kZshSetup[] = R"zsh(
fpath=($FUNCTIONS $ZSH_FUNCTIONS/Completion{,/Base,/Unix})
autoload -Uz compinit
compinit -D -u
[[ -z $EVALUATED ]] || eval "$(<$EVALUATED)"
# Calls with -O, -A or -D ask which words match, and add none.
compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local -a matches
    builtin compadd -O matches "$@"
    (( $#matches == 0 )) || print -rl -- $IPREFIX${^matches} >>$OFFERED
  fi
  builtin compadd "$@"
}
_stop() { : >>$OFFERED && exit }
comppostfuncs=(_stop)
bindkey '^I' complete-word
zle-line-init() { print ready }
zle -N zle-line-init
)zsh";

std::vector<std::string> LinesOf(const std::string& path) {
  return absl::StrSplit(ReadBytes(path), '\n', absl::SkipEmpty());
}

std::string InQuotes(const std::string& text) {
  return absl::StrCat("'", text, "'");
}

// A folder whose name is the test's own: its files are no completions.
std::string FolderForShell(const std::string& shell) {
  return NewTestFolder(absl::StrCat(".", shell));
}

std::string Absolute(const char* runfile) {
  return std::filesystem::absolute(runfile).lexically_normal();
}

}  // namespace

std::vector<std::string> OfferedByBash(const std::string& script,
                                       const std::string& words) {
  const std::string folder = FolderForShell("bash");
  WriteBytes(folder + "/script", script);
  WriteBytes(folder + "/driver", kBashDriver);
  const std::string command =
      absl::StrCat("cd ", InQuotes(testing::TempDir()), " && bash ", folder,
                   "/driver ", folder, "/script ", words, " >", folder, "/out");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return LinesOf(folder + "/out");
}

std::vector<std::string> OfferedByZsh(const std::string& script,
                                      const std::string& line, ZshUse use) {
  const std::string folder = FolderForShell("zsh");
  const std::string functions = NewTestFolder(".zsh/functions");
  const std::string program = line.substr(0, line.find(' '));
  const std::string file = absl::StrCat(functions, "/_", program);
  WriteBytes(file, script);
  WriteBytes(folder + "/driver", kZshDriver);
  WriteBytes(folder + "/.zshenv", kZshEnvironment);
  WriteBytes(folder + "/.zshrc", kZshSetup);
  const bool evaluated = use == ZshUse::kEvaluated;
  const std::string command = absl::StrCat(
      "cd ", InQuotes(testing::TempDir()),
      " && timeout 50 env -i ZSH=", Absolute(kZsh),
      " ZSH_MODULES=", Absolute(kModules),
      " ZSH_FUNCTIONS=", Absolute(kFunctions), " ZDOTDIR=", folder,
      evaluated ? " EVALUATED=" : " FUNCTIONS=", evaluated ? file : functions,
      " OFFERED=", folder, "/out ", Absolute(kZsh), " -f ", folder, "/driver ",
      InQuotes(line), " 2>", folder, "/said");
  EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n"
                                             << ReadBytes(folder + "/said");
  return LinesOf(folder + "/out");
}

}  // namespace tandem
