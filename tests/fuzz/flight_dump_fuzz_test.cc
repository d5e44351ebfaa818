// Flight dumps (core/flight/dump.h) of two ranks, what is found in them, and
// their form for PyTorch (tools/hang_diagnosis).

#include <set>
#include <utility>

#include "core/flight/dump.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"
#include "tools/hang_diagnosis/diagnose.h"
#include "tools/hang_diagnosis/history.h"
#include "tools/hang_diagnosis/pytorch_form.h"
#include "tools/hang_diagnosis/report.h"

namespace tandem {
namespace {

void CheckDump(const std::string& text) {
  const auto dump = DecodeFlightDump(text);
  if (!dump.ok()) return;
  const std::string written = EncodeFlightDump(*dump);
  const auto again = DecodeFlightDump(written);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(EncodeFlightDump(*again), written);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = tandem::InputParts(tandem::InputText(data, size), 2);
  for (size_t i = 0; i < parts.size(); ++i) {
    tandem::CheckDump(parts[i]);
    tandem::InputFile(i == 0 ? "rank_0.json" : "rank_1.json", parts[i]);
  }
  auto found = tandem::ReadDumps(tandem::InputFolder());
  if (!found.ok()) return 0;
  const tandem::JobHistory history(std::move(found->dumps));
  const tandem::Verdict verdict = tandem::Diagnose(history);
  tandem::Sentence(verdict);
  tandem::ReportText(history, verdict);
  for (const auto& [rank, dump] : history.dumps()) {
    tandem::Pickled(tandem::PyTorchForm(history, rank));
  }
  return 0;
}
