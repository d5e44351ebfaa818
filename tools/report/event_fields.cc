#include "tools/report/event_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// An event of a step has so many, or fewer.
constexpr size_t kUsualFields = 24;

// Events have objects within an object, and nothing below.
constexpr int kMostDepth = 2;

// A text that is cut ends between characters.
std::string Shortened(std::string text) {
  if (text.size() <= kMostFieldText) return text;
  size_t end = kMostFieldText;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

// Takes values as the parser comes to them, so that no tree is made of what
// others have nested.
class FieldCollector : public nlohmann::json_sax<Json> {
 public:
  FieldCollector() { fields_.reserve(kUsualFields); }

  bool null() override { return Take(std::monostate()); }
  bool boolean(bool value) override { return Take(value); }
  bool number_integer(int64_t value) override { return Take(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Take(static_cast<double>(value));
    }
    return Take(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) override {
    return Take(value);
  }
  bool string(std::string& value) override {
    return Take(Shortened(std::move(value)));
  }
  bool binary(Json::binary_t&) override { return true; }

  bool start_object(size_t) override {
    if (++depth_ == kMostDepth && arrays_ == 0) outer_ = key_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ <= kMostDepth && arrays_ == 0) {
      key_ = depth_ < kMostDepth ? name : absl::StrCat(outer_, "/", name);
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    // What is no object is no event.
    ++arrays_;
    return depth_ > 0;
  }
  bool end_array() override {
    --arrays_;
    return true;
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

  EventFields TakeFields() { return std::move(fields_); }

 private:
  bool Take(FieldValue value) {
    if (depth_ == 0) return false;
    if (depth_ <= kMostDepth && arrays_ == 0 &&
        fields_.size() < kMostEventFields) {
      fields_.emplace_back(key_, std::move(value));
    }
    return true;
  }

  int64_t depth_ = 0;
  int64_t arrays_ = 0;
  std::string outer_;
  std::string key_;
  EventFields fields_;
};

}  // namespace

std::optional<Event> ParseEvent(absl::string_view line) {
  FieldCollector collector;
  if (!Json::sax_parse(line.begin(), line.end(), &collector)) {
    return std::nullopt;
  }
  Event event;
  event.fields = collector.TakeFields();
  event.name = TextField(event.fields, "event");
  if (event.name.empty()) return std::nullopt;
  return event;
}

const FieldValue* FindField(const EventFields& fields, absl::string_view name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::optional<double> FieldNumber(const FieldValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return std::nan("");
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*whole);
  }
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

std::optional<double> NumberField(const EventFields& fields,
                                  absl::string_view name) {
  const FieldValue* const value = FindField(fields, name);
  return value == nullptr ? std::nullopt : FieldNumber(*value);
}

std::optional<int64_t> CountField(const EventFields& fields,
                                  absl::string_view name) {
  const std::optional<double> number = NumberField(fields, name);
  constexpr double kMost = 9007199254740992.0;  // 2^53
  if (!number || !(*number >= 0 && *number <= kMost)) return std::nullopt;
  if (*number != std::floor(*number)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::string TextField(const EventFields& fields, absl::string_view name) {
  const FieldValue* const value = FindField(fields, name);
  if (value == nullptr) return "";
  const auto* const text = std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

std::string FieldText(const FieldValue& value) {
  struct Texts {
    std::string operator()(std::monostate) const { return "not finite"; }
    std::string operator()(bool on) const { return on ? "true" : "false"; }
    std::string operator()(int64_t number) const {
      return absl::StrCat(number);
    }
    std::string operator()(double number) const { return absl::StrCat(number); }
    std::string operator()(const std::string& text) const { return text; }
  };
  return std::visit(Texts(), value);
}

}  // namespace tandem
