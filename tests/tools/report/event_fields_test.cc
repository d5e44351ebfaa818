// Lines of a metrics file, from whoever wrote them.

#include "tools/report/event_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::event_fields_test {
namespace {

EventFields FieldsOf(const std::string& line) {
  const std::optional<Event> event = ParseEvent(line);
  EXPECT_TRUE(event.has_value()) << line;
  return event ? event->fields : EventFields();
}

TEST(ParseEventTest, TakesFieldsOfEveryKind) {
  const EventFields fields =
      FieldsOf(R"({"event":"step","step":25,"loss":0.5,"norm":null,"on":true,)"
               R"("name":"a\u00e9","seed":18446744073709551615,"delta":-3})");
  EXPECT_EQ(TextField(fields, "event"), "step");
  EXPECT_EQ(CountField(fields, "step"), 25);
  EXPECT_EQ(NumberField(fields, "loss"), 0.5);
  EXPECT_TRUE(std::isnan(*NumberField(fields, "norm")));
  EXPECT_EQ(FieldText(*FindField(fields, "on")), "true");
  EXPECT_EQ(TextField(fields, "name"), "a\xc3\xa9");
  EXPECT_EQ(NumberField(fields, "seed"), 18446744073709551615.0);
  EXPECT_EQ(NumberField(fields, "delta"), -3);
  EXPECT_FALSE(CountField(fields, "delta").has_value());
  EXPECT_FALSE(CountField(fields, "loss").has_value());
  EXPECT_FALSE(NumberField(fields, "name").has_value());
  EXPECT_FALSE(NumberField(fields, "none").has_value());
  EXPECT_EQ(TextField(fields, "step"), "");
}

TEST(ParseEventTest, FlattensOneObjectAndLeavesOutWhatIsDeeper) {
  const EventFields fields = FieldsOf(
      R"({"event":"e","a":{"b":1,"c":{"d":2},"e":3},"l":[1,{"m":2}],"z":4})");
  EXPECT_EQ(NumberField(fields, "a/b"), 1);
  EXPECT_EQ(NumberField(fields, "a/e"), 3);
  EXPECT_EQ(NumberField(fields, "z"), 4);
  EXPECT_EQ(fields.size(), 4u);
}

TEST(ParseEventTest, RefusesWhatIsNoEvent) {
  for (const char* line :
       {"", "{", "}", "1", "null", "\"event\"", "[]", "[{\"event\":\"e\"}]",
        "{}", "{\"step\":1}", "{\"event\":7}", "{\"event\":\"\"}",
        "{\"event\":\"e\"", "{\"event\":\"e\"}x", "{\"event\":\"e\",}",
        "{\"event\":\"e\",\"loss\":1e999}", "{\"event\":\"e\",\"loss\":NaN}",
        "{\"event\":\"\xff\"}", "{\"event\":\"\\ud800\"}"}) {
    EXPECT_FALSE(ParseEvent(line).has_value()) << line;
  }
}

TEST(ParseEventTest, NestingCostsNothingButTheLine) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string line = "{\"event\":\"e\",\"deep\":";
    for (int i = 0; i < 200000; ++i) line += open;
    EXPECT_FALSE(ParseEvent(line).has_value());
  }
  std::string line = "{\"event\":\"e\",\"deep\":";
  line += std::string(200000, '[') + std::string(200000, ']') + "}";
  EXPECT_EQ(FieldsOf(line).size(), 1u);
}

TEST(ParseEventTest, KeepsNoMoreThanAnEventHas) {
  std::string line = "{\"event\":\"e\"";
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&line, ",\"f", i, "\":", i);
  EXPECT_EQ(FieldsOf(line + "}").size(), kMostEventFields);
  std::string text = "a";
  while (text.size() <= 2 * kMostFieldText) text += "\xc3\xa9";
  const std::string kept = TextField(
      FieldsOf(absl::StrCat(R"({"event":"e","t":")", text, "\"}")), "t");
  // It ends between characters.
  EXPECT_EQ(kept, text.substr(0, kMostFieldText - 1) + "...");
}

}  // namespace
}  // namespace tandem::event_fields_test
