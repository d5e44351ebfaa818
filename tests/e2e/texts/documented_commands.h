// Commands of a document, to be run as they stand there. For tests.

#ifndef TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_
#define TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_

#include <string>
#include <vector>

namespace tandem {

struct DocumentedCommand {
  std::string program;  // its runfile: "tools/train"
  std::vector<std::string> arguments;
};

// The commands `bazel run //FOLDER:NAME -- ARGUMENT...` of the first block of
// code below the heading `## HEADING` of a page in Markdown. Lines that end
// with a backslash go on; 'single quotes' hold an argument together, as in a
// shell. Anything else in the block is a failed check: nothing is left out.
std::vector<DocumentedCommand> CommandsBelow(const std::string& heading,
                                             const std::string& page);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_
