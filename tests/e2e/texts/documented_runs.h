// Runs of documented commands, as by a user who stands in a folder. For tests.

#ifndef TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_RUNS_H_
#define TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_RUNS_H_

#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/texts/documented_commands.h"

namespace tandem {

// The whole path of a file of this workspace.
std::string Runfile(const std::string& path);

// Runs `command` in `place`, with `more` arguments behind its own; expects it
// to succeed.
ProgramResult RunIn(const std::string& place, DocumentedCommand command,
                    const std::vector<std::string>& more = {});

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TEXTS_DOCUMENTED_RUNS_H_
