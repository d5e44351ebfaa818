#include "tools/trainer/report/run_page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/files/atomic_file.h"
#include "core/files/file_target.h"
#include "core/program/exit_code.h"
#include "tools/report/report_page.h"

namespace tandem {
namespace {

absl::Status CheckWritable(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const FileTarget target, ResolveFileTarget(path));
  return target.in_place ? absl::OkStatus()
                         : AtomicFile::Create(target.path).status();
}

}  // namespace

RunPage::RunPage(const std::string& path)
    : path_(path),
      reader_(path.empty() ? nullptr : std::make_unique<RunLogReader>()) {}

absl::StatusOr<RunPage> RunPage::Open(const std::string& path) {
  if (!path.empty()) {
    TANDEM_RETURN_IF_ERROR(
        RefusedIfMendable(Annotate(CheckWritable(path), "--report")));
  }
  return RunPage(path);
}

void RunPage::NoteEarlier(const std::string& metrics_file) {
  if (reader_ != nullptr) ReadEvents(metrics_file, reader_.get()).IgnoreError();
}

void RunPage::Note(const nlohmann::ordered_json& event) {
  if (reader_ == nullptr) return;
  using Json = nlohmann::ordered_json;
  // Paths may be no UTF-8.
  reader_->Add(event.dump(-1, ' ', false, Json::error_handler_t::replace));
}

absl::Status RunPage::Write() const {
  if (reader_ == nullptr) return absl::OkStatus();
  return Annotate(WriteOutputFile(path_, ReportPage({reader_->log()})),
                  "--report");
}

}  // namespace tandem
