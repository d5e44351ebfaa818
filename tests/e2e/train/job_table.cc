#include "tests/e2e/train/job_table.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void ExpectSameSteps(const Events& steps, const Events& expected) {
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const char* key : {"loss", "auxiliary_losses"}) {
      EXPECT_EQ(steps[i].value(key, nlohmann::json()),
                expected[i].value(key, nlohmann::json()))
          << key << " of step " << expected[i]["step"];
    }
  }
}

// Without what a sanitizer says of memory that there is not.
std::string OwnLines(const std::string& err) {
  const std::regex foreign("==[0-9]+==WARNING: [A-Za-z]+Sanitizer failed.*\n");
  return std::regex_replace(err, foreign, "");
}

// The run with `resume`, held against the straight one.
void ExpectGoesOnFrom(const ResumeRow& row, const Flags& flags, int first_step,
                      const Events& straight) {
  ProgramResult program;
  const Events events = RunJobForEvents(flags, &program);
  EXPECT_THAT(program.out,
              HasSubstr("at step " + std::to_string(first_step - 1)));
  EXPECT_EQ(Fingerprint(events), Fingerprint(straight));
  const Events steps = EventsOf(events, "step");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front()["step"], first_step);
  if (!row.same_lines) return;
  const Events all = EventsOf(straight, "step");
  ASSERT_GE(all.size(), steps.size());
  ExpectSameSteps(
      steps,
      Events(all.end() - static_cast<std::ptrdiff_t>(steps.size()), all.end()));
}

}  // namespace

const JobRun& RunOnce(const Flags& flags) {
  static auto* const done = new std::map<Flags, JobRun>;
  const auto found = done->find(flags);
  if (found != done->end()) return found->second;
  JobRun run;
  // Processors without instructions for bf16 take seconds a step.
  ProgramOptions patient;
  patient.timeout = std::chrono::minutes(8);
  run.events = RunJobForEvents(flags, &run.program, patient);
  return (*done)[flags] = run;
}

void SameBits(const JobRun& run, const JobRun& expected) {
  EXPECT_EQ(Fingerprint(expected.events).size(), 64u);
  EXPECT_EQ(Fingerprint(run.events), Fingerprint(expected.events));
}

void OtherBits(const JobRun& run, const JobRun& expected) {
  EXPECT_NE(Fingerprint(run.events), Fingerprint(expected.events));
}

void SameLines(const JobRun& run, const JobRun& expected) {
  SameBits(run, expected);
  ExpectSameSteps(EventsOf(run.events, "step"),
                  EventsOf(expected.events, "step"));
}

Comparison SameLosses(double tolerance, const std::string& kind) {
  return [=](const JobRun& run, const JobRun& expected) {
    const auto some = [&](const Events& events) {
      return kind.empty() ? events : EventsOf(events, kind);
    };
    const double worst = ExpectSameLosses(
        some(run.events), some(expected.events), tolerance, kind);
    std::cout << "losses differ by " << worst * 1e6 << "e-6 at most\n";
  };
}

Comparison SameLastLoss(double tolerance) {
  return [=](const JobRun& run, const JobRun& expected) {
    const double loss = LastLoss(expected.events);
    EXPECT_NEAR(LastLoss(run.events), loss, tolerance * loss);
  };
}

Comparison HasSteps(size_t steps) {
  return [=](const JobRun& run, const JobRun&) {
    EXPECT_EQ(EventsOf(run.events, "step").size(), steps);
    EXPECT_FALSE(Fingerprint(run.events).empty());
  };
}

Comparison HasStrategy(const std::string& strategy,
                       const std::string& expected_strategy) {
  return [=](const JobRun& run, const JobRun& expected) {
    EXPECT_EQ(run.events.front()["strategy"], strategy);
    EXPECT_EQ(expected.events.front()["strategy"], expected_strategy);
  };
}

Comparison Both(const Comparison& first, const Comparison& second) {
  return [=](const JobRun& run, const JobRun& expected) {
    first(run, expected);
    second(run, expected);
  };
}

void ExpectSame(const SameRow& row) {
  for (const std::string& place : row.places) {
    const Flags job = Joined(row.job, Words(place));
    const JobRun& expected = RunOnce(Joined(job, Words(row.beside)));
    for (const std::string& other : row.others) {
      const std::string cell = row.name + ": " + place + " | " + other;
      SCOPED_TRACE(cell);
      std::cout << "cell: " << cell << std::endl;
      row.comparison(RunOnce(Joined(job, Words(other))), expected);
    }
  }
}

void ExpectGoesOn(const ResumeRow& row) {
  for (const std::string& from : row.from) {
    const std::string folder = NewFolder("saved");
    const Events saved =
        RunJobForEvents(Joined(Joined(row.job, Words(from)), Words(row.saving),
                               {"--save_dir=" + folder}));
    const Events straight =
        row.saver_is_straight ? saved : RunOnce(row.job).events;
    if (row.length > 0) {
      EXPECT_EQ(EventsOf(straight, "step").size(),
                static_cast<size_t>(row.length));
    }
    for (const std::string& to : row.to) {
      SCOPED_TRACE(row.name + ": from " + from + " to " + to);
      const Flags job = Joined(row.job, Words(to));
      if (row.steps.empty() && row.first_step > 0) {
        ExpectGoesOnFrom(row, Joined(job, {"--resume=" + folder}),
                         row.first_step, straight);
      }
      for (const int step : row.steps) {
        SCOPED_TRACE(step);
        ExpectGoesOnFrom(row,
                         Joined(job, {"--resume=" + SavedStep(folder, step)}),
                         step + 1, straight);
      }
      std::cout << "cell: " << row.name << ": from " << from << " to " << to
                << std::endl;
    }
  }
}

ProgramResult ExpectRefused(const Flags& job, const RefusalRow& row,
                            bool in_one_line) {
  SCOPED_TRACE(row.name + ": " + row.flags);
  Program program(kTrain, Joined(job, Words(row.flags)));
  const ProgramResult result = program.Wait();
  if (row.exit_code == kAnyFailure) {
    EXPECT_NE(result.exit_code, 0) << result.out;
  } else {
    EXPECT_EQ(result.exit_code, row.exit_code) << result.out << result.err;
  }
  for (const std::string& text : std::vector<std::string>(
           absl::StrSplit(row.says, '|', absl::SkipEmpty()))) {
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_THAT(result.err, Not(HasSubstr("frame #")));
  EXPECT_THAT(result.err, Not(HasSubstr("Exception raised from")));
  EXPECT_TRUE(program.LivingProcesses().empty());
  if (in_one_line && result.err.find("tandem:") == std::string::npos) {
    const std::string own = OwnLines(result.err);
    EXPECT_EQ(std::count(own.begin(), own.end(), '\n'), 1) << result.err;
  }
  return result;
}

int CellsIn(const std::vector<SameRow>& rows) {
  size_t cells = 0;
  for (const SameRow& row : rows)
    cells += row.places.size() * row.others.size();
  return static_cast<int>(cells);
}

int CellsIn(const std::vector<ResumeRow>& rows) {
  size_t cells = 0;
  for (const ResumeRow& row : rows) {
    cells +=
        row.from.size() * row.to.size() * std::max<size_t>(row.steps.size(), 1);
  }
  return static_cast<int>(cells);
}

}  // namespace tandem
