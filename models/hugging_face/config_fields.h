// Fields of a config.json, read with suspicion: what is there must be of its
// kind and in its range, and what a model cannot do must not be asked for.

#ifndef TANDEM_MODELS_HUGGING_FACE_CONFIG_FIELDS_H_
#define TANDEM_MODELS_HUGGING_FACE_CONFIG_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// The greatest sizes that a config.json may ask for: beyond any model there is,
// and small enough that no product of two of them overflows.
constexpr int64_t kMostLayers = 10000;
constexpr int64_t kMostWidth = int64_t{1} << 24;   // and heads
constexpr int64_t kMostTokens = int64_t{1} << 28;  // context, vocabulary

// One JSON object. A key that is absent and one that is null are the same, as
// in transformers. Readers give a value in any case; the first error is kept.
// Not thread-safe.
class ConfigFields {
 public:
  // InvalidArgument for a text that is no JSON object.
  static absl::StatusOr<ConfigFields> Parse(absl::string_view text);

  bool Has(const std::string& key) const;

  // A whole number from 1 to `most`; required unless there is a `fallback`.
  int64_t Size(const std::string& key, int64_t most,
               std::optional<int64_t> fallback = std::nullopt);
  // A finite number greater than 0.
  double Positive(const std::string& key,
                  std::optional<double> fallback = std::nullopt);
  bool Switch(const std::string& key, bool fallback);
  std::string Word(const std::string& key, const std::string& fallback);
  // Nothing where it is absent.
  std::optional<ConfigFields> Object(const std::string& key);

  // An error unless the value is absent, or one of these. `why`: what the model
  // here does instead.
  void Expect(const std::string& key, std::initializer_list<nlohmann::json> one,
              absl::string_view why);
  // An error that names the key and its value.
  void Refuse(const std::string& key, absl::string_view why);

  // Token numbers, one or several; none where it is absent. InvalidArgument for
  // anything else.
  absl::StatusOr<std::vector<int64_t>> Tokens(const std::string& key) const;

  // Keys of `names` that are greater than 0, with their values, for a person:
  // "attn_pdrop 0.1".
  std::vector<std::string> Positives(absl::Span<const char* const> names) const;

  // The first error.
  const absl::Status& status() const { return status_; }
  // Takes over that of an object within this one.
  void Keep(const absl::Status& status) { status_.Update(status); }

 private:
  explicit ConfigFields(nlohmann::json object) : object_(std::move(object)) {}
  std::string FieldText(const std::string& key) const;
  void Expected(const std::string& key, absl::string_view what);

  nlohmann::json object_;
  absl::Status status_;
};

// Token numbers as a config.json has them: null for none, one alone, or a list.
nlohmann::ordered_json TokensField(const std::vector<int64_t>& tokens);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_CONFIG_FIELDS_H_
