#include "datasets/tokenizers/byte_pair/splitter.h"

#include <pcre2.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// Expressions come from files, and so may those that never end: a piece takes
// some steps for each of its characters, and none has as many as this.
constexpr uint32_t kMostSteps = 50'000'000;
constexpr uint32_t kMostHeapKib = 256 << 10;
constexpr size_t kFirstStackBytes = 32 << 10;
constexpr size_t kMostStackBytes = 64 << 20;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using Stack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

std::string Words(int error) {
  PCRE2_UCHAR words[256] = {};
  pcre2_get_error_message(error, words, sizeof(words));
  return reinterpret_cast<const char*>(words);
}

absl::Status Refuse(absl::string_view pattern, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the regular expression ", pattern, " cannot be used: ", reason));
}

// With \s and \S as Unicode has them: PCRE2's take U+180E along.
absl::StatusOr<std::string> InPcre2sWords(absl::string_view pattern) {
  if (absl::StrContains(pattern, "&&") || absl::StartsWith(pattern, "(*")) {
    return Refuse(pattern, "it has && or begins with (*");
  }
  std::string words;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      words.push_back(pattern[i]);
      continue;
    }
    const char escaped = pattern[++i];
    if (absl::StrContains("hHKR", absl::string_view(&escaped, 1))) {
      return Refuse(pattern,
                    absl::StrCat("it has \\", std::string(1, escaped)));
    }
    if (escaped == 's' || escaped == 'S') {
      absl::StrAppend(&words, escaped == 's' ? "\\p" : "\\P", "{White_Space}");
    } else {
      words.push_back('\\');
      words.push_back(escaped);
    }
  }
  return words;
}

}  // namespace

const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Splitter::Compiled {
  std::string pattern;
  Code code;
  bool to_machine_code = false;
};

Splitter::Splitter(std::unique_ptr<Compiled> compiled, SplitKeeps keeps)
    : compiled_(std::move(compiled)), keeps_(keeps) {}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

absl::StatusOr<Splitter> Splitter::Create(absl::string_view pattern,
                                          SplitKeeps keeps) {
  TANDEM_ASSIGN_OR_RETURN(const std::string words, InPcre2sWords(pattern));
  int error = 0;
  PCRE2_SIZE place = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->pattern = std::string(pattern);
  compiled->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(words.data()), words.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
      &error, &place, nullptr));
  if (compiled->code == nullptr) {
    return Refuse(pattern, absl::StrCat(Words(error), " after ", place,
                                        " bytes of ", words));
  }
  // Where the system forbids machine code made in memory, it is interpreted.
  compiled->to_machine_code =
      pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Splitter(std::move(compiled), keeps);
}

bool Splitter::may_match_nothing() const {
  uint32_t may = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

// What matching needs beside the expression, for one thread.
struct Splitter::Matching {
  MatchData found{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  Stack stack;

  explicit Matching(bool machine_code) {
    pcre2_set_match_limit(context.get(), kMostSteps);
    pcre2_set_heap_limit(context.get(), kMostHeapKib);
    if (!machine_code) return;
    stack.reset(
        pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

absl::Status Splitter::Split(absl::Span<const absl::string_view> texts,
                             std::vector<absl::string_view>* pieces) const {
  const Matching matching(compiled_->to_machine_code);
  for (const absl::string_view text : texts) {
    TANDEM_RETURN_IF_ERROR(SplitOne(text, matching, pieces));
  }
  return absl::OkStatus();
}

absl::Status Splitter::SplitOne(absl::string_view text,
                                const Matching& matching,
                                std::vector<absl::string_view>* pieces) const {
  const auto* const begin = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  const auto keep_until = [&](size_t end) {
    if (end == done || keeps_ == SplitKeeps::kMatches) return;
    pieces->push_back(text.substr(done, end - done));
  };
  while (done < text.size()) {
    const int matches =
        pcre2_match(compiled_->code.get(), begin, text.size(), done,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, matching.found.get(),
                    matching.context.get());
    if (matches == PCRE2_ERROR_NOMATCH) break;
    if (matches < 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the regular expression ", compiled_->pattern, " gives up ", done,
          " bytes into a text of ", text.size(), ": ", Words(matches)));
    }
    const PCRE2_SIZE* const ends =
        pcre2_get_ovector_pointer(matching.found.get());
    keep_until(ends[0]);
    pieces->push_back(text.substr(ends[0], ends[1] - ends[0]));
    done = ends[1];
  }
  keep_until(text.size());
  return absl::OkStatus();
}

}  // namespace tandem
