// Event: one line of a metrics file (--metrics_file), from whoever wrote it.

#ifndef TANDEM_TOOLS_REPORT_EVENT_FIELDS_H_
#define TANDEM_TOOLS_REPORT_EVENT_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// null, a boolean, a number or a text.
using FieldValue =
    std::variant<std::monostate, bool, int64_t, double, std::string>;

// By name, in the order of the line; what lies in an object within has the
// names of both: "auxiliary_losses/z_loss".
using EventFields = std::vector<std::pair<std::string, FieldValue>>;

struct Event {
  std::string name;  // "step", the field "event"
  EventFields fields;
};

// What is kept of one event, whatever stands there.
constexpr size_t kMostEventFields = 1000;
constexpr size_t kMostFieldText = 4096;  // bytes; a longer text ends in "..."

// None for what is no JSON object with an "event", which is a text. Arrays, and
// objects that lie deeper than one within another, are left out. Takes memory
// in proportion to the line, however deep it is nested.
std::optional<Event> ParseEvent(absl::string_view line);

// The first field of that name; null: there is none.
const FieldValue* FindField(const EventFields& fields, absl::string_view name);

// A value's number; none for another kind of value, or NaN for null, which
// stands for a number that is not finite.
std::optional<double> FieldNumber(const FieldValue& value);

// The field's number; none where there is no such field, either.
std::optional<double> NumberField(const EventFields& fields,
                                  absl::string_view name);
// A number that is whole, from 0 to 2^53.
std::optional<int64_t> CountField(const EventFields& fields,
                                  absl::string_view name);
// Its text; empty for any other kind of value.
std::string TextField(const EventFields& fields, absl::string_view name);

// A value as a person would type it: "0.05", "true", "ddp"; null is "not
// finite".
std::string FieldText(const FieldValue& value);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_EVENT_FIELDS_H_
