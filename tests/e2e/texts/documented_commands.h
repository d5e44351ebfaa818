// Commands of a document, run as they stand there by a user who stands in a
// folder. For tests.

#ifndef TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_
#define TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_

#include <string>
#include <vector>

#include "tests/e2e/program.h"

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

// The whole path of a file of this workspace.
std::string Runfile(const std::string& path);

// Runs `command` in `place`, with `more` arguments behind its own; expects it
// to succeed.
ProgramResult RunIn(const std::string& place, DocumentedCommand command,
                    const std::vector<std::string>& more = {});

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_COMMANDS_H_
