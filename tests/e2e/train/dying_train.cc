// train with a place that cannot be used: its rank 2 dies as it starts, but for
// the first time. For tests.

#include <csignal>
#include <cstdlib>
#include <string>

#include "tools/train_main.h"

namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string restarts = Variable("TORCHELASTIC_RESTART_COUNT");
  const bool is_restarted = !restarts.empty() && restarts != "0";
  if (Variable("RANK") == "2" && is_restarted) std::raise(SIGKILL);
  return tandem::TrainMain(argc, argv);
}
