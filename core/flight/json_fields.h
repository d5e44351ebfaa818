// JSON fields of a flight dump: read from a file that anybody may have written,
// each with the type and range that it must have.

#ifndef TANDEM_CORE_FLIGHT_JSON_FIELDS_H_
#define TANDEM_CORE_FLIGHT_JSON_FIELDS_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// An object. Every error is InvalidArgument and names the field, by its path
// ("entries[3].group").
class JsonFields {
 public:
  // `what` is what errors call the whole: "a flight dump".
  static absl::StatusOr<JsonFields> Parse(absl::string_view text,
                                          absl::string_view what);

  absl::StatusOr<std::string> Text(const char* key) const;
  // An integer of [0, 2^63).
  absl::StatusOr<int64_t> Count(const char* key) const;
  absl::StatusOr<int> Int(const char* key, int least,
                          int most = std::numeric_limits<int>::max()) const;
  // A list of counts, none greater than `most`.
  absl::StatusOr<std::vector<int64_t>> Numbers(
      const char* key,
      int64_t most = std::numeric_limits<int64_t>::max()) const;
  // A list of objects.
  absl::StatusOr<std::vector<JsonFields>> Objects(const char* key) const;

  // The error of a field that is not what it should be.
  absl::Status Wrong(const char* key, absl::string_view expected) const;

 private:
  using Json = nlohmann::json;

  JsonFields(Json object, std::string path)
      : object_(std::move(object)), path_(std::move(path)) {}

  const Json& At(const char* key) const;  // null: there is none

  Json object_;
  std::string path_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_FLIGHT_JSON_FIELDS_H_
