// What shells offer to complete by a completion script
// (core/program/completion.h): bash, the machine's, and zsh, of
// third_party/zsh. For tests.

#ifndef TANDEM_TESTS_CORE_PROGRAM_SHELL_COMPLETION_H_
#define TANDEM_TESTS_CORE_PROGRAM_SHELL_COMPLETION_H_

#include <string>
#include <vector>

namespace tandem {

// The completions that bash is given for these words, of which the last one is
// being typed: the function that `script` has registered for the first word is
// called as bash calls it. Paths are those of the test's temporary folder.
std::vector<std::string> OfferedByBash(const std::string& script,
                                       const std::string& words);

// How zsh comes to know of a script.
enum class ZshUse {
  kEvaluated,       // eval "$(program --completion=zsh)" behind compinit
  kFileOfFunctions  // a file _PROGRAM in $fpath
};

// The matches of zsh, whole words, when `line` and Tab are typed at its prompt.
std::vector<std::string> OfferedByZsh(const std::string& script,
                                      const std::string& line,
                                      ZshUse use = ZshUse::kEvaluated);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_PROGRAM_SHELL_COMPLETION_H_
