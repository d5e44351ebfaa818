// What looks on while a job trains changes no bit of what is trained: with all
// of it on, every layout ends with the weights of a job with none.

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/tensorboard/event_records.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/job_table.h"
#include "tests/e2e/train/runs.h"

namespace tandem::observing_test {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct ObservedRow {
  std::string name;
  bool is_text = false;  // else it is of images
  std::string flags;
};

constexpr char kReproducible[] = "--reproducible --microbatch_size=2 ";

std::vector<ObservedRow> Rows() {
  std::vector<ObservedRow> rows = {{"ImagesAsUsual", false, ""}};
  for (const auto& [layout, flags] :
       {std::pair("OneDevice", ""), std::pair("Ddp", "--nproc_per_node=2"),
        std::pair("Pipeline", "--devices_per_rank=2 --strategy=pipeline"),
        std::pair("Hybrid", "--nproc_per_node=4 --pipe=2")}) {
    for (const bool is_text : {false, true}) {
      rows.push_back({std::string(is_text ? "Text" : "Images") + layout,
                      is_text, std::string(kReproducible) + flags});
    }
  }
  return rows;
}

// Six steps of a language model, with a tokenizer beside its data.
Flags TextJob() {
  static const auto* const folder = [] {
    auto* const made = new std::string(NewText("observed_text"));
    std::ofstream(*made + "/tokenizer.txt") << "bytes\n";
    return made;
  }();
  return Joined(Words("--model=gpt_tiny --dataset=tokens --vocabulary=256 "
                      "--context=16 --batch_size=16 --optimizer=adam "
                      "--max_steps=6 --eval_batches=1 --log_every=1 "
                      "--intra_op_threads=1 --save_dir="),
                TestBackendFlags(), {"--data_dir=" + *folder});
}

// What the job of a row is compared with: one device's bits are all layouts'.
Flags Unobserved(const ObservedRow& row) {
  return Joined(row.is_text ? TextJob() : Small(),
                Words(row.flags.empty() ? "" : kReproducible));
}

// All that any job can have; files lie in `folder`.
Flags Observed(const std::string& folder) {
  return {"--eval_every=2",
          "--keep_best=loss",
          "--early_stopping_patience=100",
          "--save_dir=" + folder + "/saved",
          "--tensorboard_dir=" + folder + "/board",
          "--histograms_every=2",
          "--report=" + folder + "/page.html",
          "--prometheus_file=" + folder + "/job.prom",
          "--trace_file=" + folder + "/trace.json",
          "--trace_steps=2-3"};
}

bool HasTag(const std::vector<ReadEvent>& events, const std::string& tag) {
  return std::any_of(events.begin(), events.end(), [&](const ReadEvent& each) {
    return each.texts.count(tag) > 0 || each.histograms.count(tag) > 0;
  });
}

class ObservedJobTest : public testing::TestWithParam<ObservedRow> {};

TEST_P(ObservedJobTest, EndsWithTheBitsOfOneThatIsNot) {
  const ObservedRow& row = GetParam();
  const std::string folder = NewFolder("observed");
  const Flags more = row.is_text ? Flags{"--sample_every=2", "--prompt=in the",
                                         "--max_new_tokens=4"}
                                 : Flags{"--misclassified_images=3"};
  const Flags job = Unobserved(row);
  const Events events = RunJobForEvents(
      Joined(Joined(job, Words(row.flags)), Observed(folder), more));
  EXPECT_EQ(Fingerprint(events), Fingerprint(RunOnce(job).events));
  // It was looked at.
  EXPECT_THAT(EventsOf(events, "eval"), SizeIs(3));
  EXPECT_THAT(EventsOf(events, "step"), SizeIs(6));
  for (const char* file :
       {"/page.html", "/job.prom", "/trace.json", "/saved/evaluations.json",
        "/saved/best/manifest.json"}) {
    EXPECT_THAT(FileContents(folder + file), Not(IsEmpty())) << file;
  }
  const std::vector<ReadEvent> board = EventsIn(folder + "/board");
  EXPECT_TRUE(HasTag(board, row.is_text ? "sample" : "misclassified"));
  EXPECT_TRUE(HasTag(board, row.is_text ? "gradients/transformer.wte.weight"
                                        : "gradients/fc1.weight"));
}

INSTANTIATE_TEST_SUITE_P(All, ObservedJobTest, testing::ValuesIn(Rows()),
                         RowName<ObservedRow>);

}  // namespace
}  // namespace tandem::observing_test
