// Pages of runs: what is on them, whoever wrote the logs.

#include "tools/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/tools/report/well_formed.h"
#include "tools/report/final_numbers.h"
#include "tools/report/run_log.h"
#include "tools/report/run_names.h"
#include "tools/report/settings_tables.h"

namespace tandem::report_page_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunLog LogOf(const std::string& lines, const std::string& name = "run") {
  RunLogReader reader;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    reader.Add(line);
  }
  reader.log().name = name;
  return reader.log();
}

// What every page is, whatever it shows.
std::string PageOf(const std::vector<RunLog>& runs) {
  const std::string page = ReportPage(runs);
  EXPECT_EQ(MarkupError(page), "");
  // It needs nothing from anywhere.
  for (const char* way :
       {" src=", "url(", "@import", "<link", "<img", "href"}) {
    EXPECT_THAT(page, Not(HasSubstr(way)));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("name=\"viewport\""),
                          HasSubstr("default-src &#39;none&#39;"),
                          HasSubstr("prefers-color-scheme:dark"),
                          HasSubstr("@media print")));
  return page;
}

constexpr char kSettings[] =
    R"({"event":"settings","time":100,"model":"mlp_deep","dataset":)"
    R"("fashion_mnist","batch_size":64,"batch_per_replica":64,"optimizer":)"
    R"("sgd","learning_rate":0.05,"strategy":"pipeline","mesh":)"
    R"("data 1 x pipe 2","pipe":2,"schedule":"gpipe","microbatches":4,)"
    R"("device":"cpu","epochs":1,"flops_per_sample":0})"
    "\n";

std::string Steps(int count, int every) {
  std::string lines;
  for (int step = every; step <= count; step += every) {
    absl::StrAppendFormat(
        &lines,
        R"({"event":"step","time":%d,"step":%d,"loss":%f,"accuracy":0.5,)"
        R"("learning_rate":0.05,"gradient_norm":1.5,"samples_per_s":1000,)"
        R"("step_ms":64,"rss_mib":200,"auxiliary_losses":{"z_loss":0.01}})"
        "\n",
        100 + step, step, 2.0 / step);
  }
  return lines;
}

const std::string& WholeRun() {
  static const auto* const run = new std::string(absl::StrCat(
      kSettings,
      R"({"event":"environment","processor":"A Processor","cores":2})"
      "\n"
      R"({"event":"start","time":100,"step":0})"
      "\n",
      Steps(100, 25),
      R"({"event":"eval","time":210,"epoch":1,"loss":0.5,"accuracy":0.75})"
      "\n"
      R"({"event":"summary","time":220,"test_loss":0.5,"test_accuracy":0.75,)"
      R"("samples_per_s":1234.5,"step_ms_median":51.8,"peak_rss_mib":321,)"
      R"("weights_sha256":"00ff","pipeline_times":"device  busy\n0 <1>  2",)"
      R"("device_memory":{"sim:0":"12 MiB: parameters 8 MiB, other 4 MiB; )"
      R"(20 MiB of 1 GiB reserved","sim:1":"lots"}})"));
  return *run;
}

TEST(ReportPageTest, OfOneRunHasItsNumbersCurvesAndLayout) {
  const std::string page = PageOf({LogOf(WholeRun())});
  EXPECT_THAT(
      page, AllOf(HasSubstr("<h1>mlp_deep on fashion_mnist</h1>"),
                  HasSubstr("a pipeline of 2 stages on 2 ranks (gpipe, "
                            "4 microbatches), cpu; sgd, learning rate "
                            "0.05; batch 64; ended 1970-01-01 00:03"),
                  HasSubstr("<dt>test loss</dt><dd>0.5</dd>"),
                  HasSubstr("<dt>test accuracy</dt><dd>75 %</dd>"),
                  HasSubstr("<dd>1234</dd><dd class=\"more\">samples/s, mean"),
                  HasSubstr("<dd>51.8 ms</dd>"), HasSubstr("<dd>321 MiB</dd>"),
                  HasSubstr("<dd>2 min 0 s</dd>")));
  for (const char* title :
       {"Loss", "Accuracy", "Learning rate", "Gradient norm", "Throughput",
        "Step time", "z_loss", "Memory of rank 0&#39;s process"}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("<strong>", title, "</strong>")));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("<b>rank 1</b><br/>stage 1"),
                          HasSubstr("gpipe: step 15, of which 3 bubble"),
                          HasSubstr("0 &lt;1&gt;  2\n"),
                          HasSubstr("width:66.67%"), HasSubstr("lots"),
                          HasSubstr("A Processor"), HasSubstr("00ff")));
  EXPECT_THAT(page, Not(HasSubstr("class=\"note warning\"")));
}

TEST(ReportPageTest, SettingsAreThoseThatAreNotAsUsualAndAllWhenOneAsks) {
  const std::string page = PageOf({LogOf(WholeRun())});
  const size_t all = page.find("<details><summary>All 14 settings");
  ASSERT_NE(all, std::string::npos);
  const std::string row = "<tr><th>optimizer</th><td>sgd</td></tr>";
  EXPECT_GT(page.find(row), all);
  EXPECT_LT(page.find("<tr><th>pipe</th><td>2</td></tr>"), all);
  EXPECT_LT(page.find("<tr><th>mesh</th>"), all);
}

// Columns may be of any width: each table lies in a box that scrolls, or
// scrolls itself.
TEST(ReportPageTest, NoTableWidensThePage) {
  const RunLog run = LogOf(absl::StrCat(
      WholeRun(), "\n",
      R"({"event":"summary","device_memory":{"sim:0":"lots"},"loss":1,)"
      R"("rank_step_ms_median":50,"slowest_ranks":{"0":50,"1":60}})"));
  const RunLog other = LogOf(R"({"event":"settings","model":"cnn"})");
  const std::string one = PageOf({run});
  const std::string two = PageOf({run, other});
  EXPECT_THAT(one, HasSubstr(".scroll{overflow-x:auto}"));
  EXPECT_THAT(one, ContainsRegex("\\.mesh\\{[^}]*overflow-x:auto"));
  int tables = 0;
  for (const std::string& page : {one, two}) {
    for (size_t at = page.find("<table"); at != std::string::npos;
         at = page.find("<table", at + 1)) {
      const absl::string_view before(page.data(), at);
      const absl::string_view table(page.data() + at, page.size() - at);
      EXPECT_TRUE(absl::EndsWith(before, "<div class=\"scroll\">") ||
                  absl::StartsWith(table, "<table class=\"mesh\">"))
          << table.substr(0, 80);
      ++tables;
    }
  }
  // The mesh, ranks, memory, settings twice, environment, summary; and, of two
  // runs, numbers and settings.
  EXPECT_EQ(tables, 7 + 2);
}

TEST(ReportPageTest, LeavesOutWhatThereIsNothingFor) {
  const std::string page = PageOf({LogOf(
      absl::StrCat(R"({"event":"settings","model":"cnn","strategy":"single",)"
                   R"("mesh":"data 1 x pipe 1"})"
                   "\n",
                   R"({"event":"step","step":1,"loss":2})"))});
  EXPECT_THAT(page, AllOf(HasSubstr("<h1>cnn</h1>"), HasSubstr("one device"),
                          HasSubstr("<strong>Loss</strong>"),
                          HasSubstr("There is no summary")));
  for (const char* section :
       {"Layout", "Environment", "Summary", "Memory", "test loss", "Accuracy",
        "Throughput", "pipeline&#39;s time"}) {
    EXPECT_THAT(page, Not(HasSubstr(absl::StrCat(">", section))));
  }
}

TEST(ReportPageTest, TheSlowestOfSeveralRanksAreListed) {
  const auto page = [](const std::string& ranks) {
    return PageOf({LogOf(absl::StrCat(
        R"({"event":"summary","rank_step_ms_median":50,"slowest_ranks":{)",
        ranks, "}}"))});
  };
  const std::string several = page(R"("7":62.5,"0":50,"3":49,"x":null)");
  EXPECT_THAT(several,
              AllOf(HasSubstr("<h2>Slowest ranks</h2>"),
                    HasSubstr("<tr><th>rank 7</th><td><div class=\"bar c0\">"
                              "<span style=\"width:100.00%\"></span></div>"
                              "</td><td>62.5 ms</td><td>+25.0 %</td></tr>"),
                    HasSubstr("width:80.00%"),
                    HasSubstr("<td>50 ms</td><td>+0.0 %</td>"),
                    HasSubstr("<td>49 ms</td><td>-2.0 %</td>")));
  EXPECT_THAT(several, Not(HasSubstr("rank x")));
  EXPECT_LT(several.find("rank 7"), several.find("rank 0"));
  EXPECT_LT(several.find("rank 0"), several.find("rank 3"));
  EXPECT_THAT(page(R"("0":50)"), Not(HasSubstr("Slowest ranks")));
}

TEST(ReportPageTest, OfAnEvaluationAloneOrNothingIsAPage) {
  const std::string evaluated =
      PageOf({LogOf(R"({"event":"eval","epoch":1,"loss":0.25})"
                    "\n"
                    R"({"event":"summary","test_loss":0.25,"loss":0})")});
  EXPECT_THAT(evaluated, HasSubstr("<dt>test loss</dt><dd>0.25</dd>"));
  EXPECT_THAT(PageOf({RunLog()}), HasSubstr("<h1>A training run</h1>"));
}

TEST(ReportPageTest, SaysWhatWasLeftOut) {
  EXPECT_THAT(PageOf({LogOf(
                  absl::StrCat(kSettings, Steps(100, 25), "no event\n",
                               R"({"event":"start","step":50})"
                               "\n",
                               R"({"event":"step","step":75,"loss":null})"))}),
              AllOf(HasSubstr("went on from step 50 after"),
                    HasSubstr("1 line is no event, the first is line 6."),
                    HasSubstr("1 point is NaN or infinite"),
                    HasSubstr("There is no summary")));
}

TEST(ReportPageTest, SeveralRunsStandSideBySide) {
  const RunLog one = LogOf(WholeRun(), "one");
  RunLog other =
      LogOf(absl::StrCat(R"({"event":"settings","model":"mlp_deep","dataset":)"
                         R"("fashion_mnist","seed":7,"batch_size":64})"
                         "\n",
                         Steps(50, 25)),
            "the <other>");
  const std::string page = PageOf({one, other});
  EXPECT_THAT(page,
              AllOf(HasSubstr("<h1>2 runs of mlp_deep on fashion_mnist</h1>"),
                    HasSubstr("<th>test loss</th><td>0.5</td><td>-</td>"),
                    HasSubstr("<th>steps</th><td>100</td><td>50</td>"),
                    HasSubstr("<bdi>one training</bdi>"),
                    HasSubstr("<bdi>the &lt;other&gt; training</bdi>"),
                    HasSubstr("<th>seed</th><td>-</td><td>7</td>"),
                    HasSubstr("<bdi>the &lt;other&gt;</bdi>: There is no")));
  EXPECT_THAT(page, Not(HasSubstr("<th>batch_size</th>")));
  other.settings = {{"model", std::string("cnn")}};
  EXPECT_THAT(PageOf({one, other}), HasSubstr("<h1>2 runs</h1>"));
}

// Names, texts and numbers that would do something to a page, or to a program
// that makes one.
TEST(ReportPageTest, HostileLogsAreShownAsTheyAre) {
  const std::string evil = R"(\u003cscript>alert(1)\u003c/script>\"'&\u0000)"
                           R"(\u001b[2J\uffff\u202e)";
  std::string lines;
  for (const char* event : {"settings", "environment", "summary", "eval",
                            "start", "step", "skipped_step", "no_such"}) {
    absl::StrAppend(&lines, R"({"event":")", event, R"(","step":1,"time":1)");
    for (const char* field :
         {"model", "dataset", "optimizer", "strategy", "device", "schedule",
          "mesh", "weights_sha256", "pipeline_times", "job", "any"}) {
      absl::StrAppend(&lines, ",\"", field, "\":\"", evil, "\"");
    }
    absl::StrAppend(&lines, ",\"", evil, "\":1,\"sums\":{\"", evil,
                    "\":1},\"device_memory\":{\"", evil, "\":\"1 B: ", evil,
                    " 1 B\"},\"rank_step_ms_median\":1e-300,",
                    "\"slowest_ranks\":{\"1\":2,\"", evil, "\":1},",
                    "\"loss\":1e300,\"accuracy\":-1e308,",
                    "\"learning_rate\":1e-320,\"gradient_norm\":-0.0,",
                    "\"batch_size\":9007199254740993,\"devices_per_rank\":-5,",
                    "\"samples_per_s\":1e308,\"step_ms\":1e308,",
                    "\"peak_rss_mib\":1e308,\"skipped_steps\":9e15}\n");
  }
  const RunLog run = LogOf(lines, "<b>&\"'\x01\xff");
  for (const std::string& page : {PageOf({run}), PageOf({run, run})}) {
    EXPECT_THAT(page, AllOf(Not(HasSubstr("<script>alert")),
                            HasSubstr("&lt;script&gt;alert(1)")));
  }
}

// Every line is an event cut off somewhere, or one of its bytes another.
TEST(ReportPageTest, DamagedLogsMakeAPageOrNone) {
  const std::string whole = WholeRun();
  for (size_t at = 0; at < whole.size(); at += 13) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    ReportPage({LogOf(damaged)});
    ReportPage({LogOf(whole.substr(at))});
  }
}

TEST(ReportPageTest, OfManyStepsIsLessThanAMegabyte) {
  RunLogReader reader;
  for (const absl::string_view line : absl::StrSplit(WholeRun(), '\n')) {
    if (!absl::StrContains(line, "summary")) reader.Add(line);
  }
  for (int step = 101; step <= 200000; ++step) {
    reader.Add(absl::StrFormat(
        R"({"event":"step","step":%d,"loss":%.4f,"accuracy":%.4f,)"
        R"("learning_rate":%.6f,"gradient_norm":%.3f,"samples_per_s":%d,)"
        R"("step_ms":%.2f,"rss_mib":%d})",
        step, 1 + step * 7919 % 1000 / 1000.0, step * 31 % 97 / 97.0,
        1.0 / step, step * 104729 % 1013 / 100.0, 1000 + step * 13 % 101,
        60 + step * 17 % 103 / 10.0, 200 + step % 11));
  }
  const std::string page = PageOf({reader.log()});
  EXPECT_LT(page.size(), 1000000u);
  EXPECT_GT(page.size(), 100000u);
}

std::vector<std::string> Shown(const RunLog& run) {
  std::vector<std::string> shown;
  for (const FinalNumber& number : FinalNumbers(run)) {
    shown.push_back(absl::StrCat(number.label, "=", number.value,
                                 number.unit.empty() ? "" : " ", number.unit,
                                 number.note.empty() ? "" : " ", number.note));
  }
  return shown;
}

TEST(FinalNumbersTest, OfARunWithoutASummaryAreThoseOfItsSteps) {
  EXPECT_THAT(
      Shown(LogOf(absl::StrCat(
          kSettings, Steps(100, 25),
          R"({"event":"eval","time":201,"step":25,"loss":0.5})"
          "\n",
          R"({"event":"eval","time":202,"step":50,"loss":0.75})"
          "\n",
          R"({"event":"skipped_step","step":99,"skipped_steps":3})"))),
      ElementsAre("test loss=0.75 best 0.5 at step 25",
                  "training loss=0.02 last line", "steps=100 3 skipped",
                  "throughput=1000 samples/s median", "step=64 ms median",
                  "peak memory=200 MiB rank 0, host", "time=1 min 42 s"));
}

TEST(FinalNumbersTest, OfTextHaveItsPerplexityAndTokens) {
  EXPECT_THAT(
      Shown(LogOf(
          R"({"event":"step","step":4,"loss":0,"tokens_per_s":51200,"mfu":0.25})"
          "\n"
          R"({"event":"eval","step":4,"loss":0,"perplexity":1,"accuracy":0.5})")),
      ElementsAre("test loss=0", "test perplexity=1", "test accuracy=50 %",
                  "training loss=0 last line", "steps=4",
                  "throughput=51.2 k tokens/s median", "MFU=25 % median"));
}

TEST(DifferingSettingsTest, AreThoseOfAnyRun) {
  RunLog one;
  one.settings = {{"a", int64_t{1}}, {"b", 0.5}, {"time", 1.0}};
  RunLog two;
  two.settings = {{"a", int64_t{1}}, {"c", true}, {"time", 2.0}};
  const std::vector<SettingRow> rows = DifferingSettings({one, two});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "b");
  EXPECT_THAT(rows[0].values, ElementsAre("0.5", "-"));
  EXPECT_EQ(rows[1].name, "c");
  EXPECT_THAT(rows[1].values, ElementsAre("-", "true"));
}

TEST(RunNamesTest, TellPathsApart) {
  EXPECT_THAT(RunNames({"runs/wide.jsonl"}), ElementsAre("wide"));
  EXPECT_THAT(RunNames({"wide.jsonl", "deep.v2.jsonl"}),
              ElementsAre("wide", "deep.v2"));
  EXPECT_THAT(RunNames({"runs/a/m.jsonl", "/runs/b/m.jsonl"}),
              ElementsAre("a", "b"));
  EXPECT_THAT(RunNames({"x/a/m.jsonl", "y/a/m.jsonl", "y/b/m.jsonl"}),
              ElementsAre("x/a", "y/a", "y/b"));
  EXPECT_THAT(RunNames({"m.jsonl", "a/m.jsonl"}), ElementsAre("m", "a/m"));
  EXPECT_THAT(RunNames({"m.jsonl", "m.jsonl", "m.json"}),
              ElementsAre("m", "m (2)", "m (3)"));
  EXPECT_THAT(RunNames({}), ElementsAre());
}

}  // namespace
}  // namespace tandem::report_page_test
