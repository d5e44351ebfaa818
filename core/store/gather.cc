#include "core/store/gather.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

std::vector<uint8_t> ToBytes(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

// The texts that ranks have appended: each one's number and its text.
GatheredTexts DecodeList(absl::string_view list, int size) {
  GatheredTexts texts(size);
  while (const std::optional<int> rank = TakeNumber(&list)) {
    const std::optional<absl::string_view> text = TakeField(&list);
    if (*rank < 0 || *rank >= size || !text.has_value()) break;
    texts[*rank] = std::string(*text);
  }
  return texts;
}

// How many texts differ, those, and which of them is each rank's.
std::string EncodeTable(const GatheredTexts& texts) {
  std::map<std::string, int> number;
  std::string different;
  std::string numbers;
  for (const std::optional<std::string>& text : texts) {
    const int next = static_cast<int>(number.size());
    const auto [at, is_new] = number.try_emplace(text.value_or(""), next);
    if (is_new) AppendField(at->first, &different);
    AppendNumber(at->second, &numbers);
  }
  std::string table;
  AppendField(absl::StrCat(number.size()), &table);
  return absl::StrCat(table, different, numbers);
}

absl::StatusOr<GatheredTexts> DecodeTable(absl::string_view table, int size) {
  const absl::Status garbled =
      absl::InternalError("the store holds something else than was left there");
  const std::optional<int> count = TakeNumber(&table);
  if (!count.has_value() || *count < 0) return garbled;
  std::vector<std::string> different;
  for (int i = 0; i < *count; ++i) {
    const std::optional<absl::string_view> text = TakeField(&table);
    if (!text.has_value()) return garbled;
    different.emplace_back(*text);
  }
  GatheredTexts texts;
  for (int r = 0; r < size; ++r) {
    const std::optional<int> number = TakeNumber(&table);
    if (!number.has_value() || *number < 0 || *number >= *count) return garbled;
    texts.emplace_back(different[*number]);
  }
  return texts;
}

constexpr std::chrono::milliseconds kAskAgain(500);

// DeadlineExceeded where it is over or the timeout has passed.
absl::Status WaitFor(c10d::Store& store, const std::string& key,
                     std::chrono::milliseconds timeout,
                     const std::function<bool()>& is_over) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left =
        std::max(std::chrono::milliseconds(1),
                 std::chrono::duration_cast<std::chrono::milliseconds>(
                     end - std::chrono::steady_clock::now()));
    const auto wait = is_over ? std::min(left, kAskAgain) : left;
    const absl::Status come = CatchTorch([&] { store.wait({key}, wait); });
    if (!absl::IsDeadlineExceeded(come) || wait == left || is_over()) {
      return come;
    }
  }
}

}  // namespace

absl::StatusOr<GatheredTexts> GatherAtStore(
    c10d::Store& store, const std::string& key, int rank, int size,
    const std::string& mine, std::chrono::milliseconds timeout,
    const std::function<bool()>& is_over) {
  const std::string list = absl::StrCat(key, "/list");
  const std::string all = absl::StrCat(key, "/all");
  return CatchTorchOr([&]() -> absl::StatusOr<GatheredTexts> {
    std::string record;
    AppendNumber(rank, &record);
    AppendField(mine, &record);
    store.append(list, ToBytes(record));
    if (store.add(absl::StrCat(key, "/count"), 1) == size) {
      store.set(all, EncodeTable(DecodeList(store.get_to_str(list), size)));
    }
    const absl::Status come = WaitFor(store, all, timeout, is_over);
    if (come.ok()) return DecodeTable(store.get_to_str(all), size);
    if (!absl::IsDeadlineExceeded(come)) return come;
    return DecodeList(store.get_to_str(list), size);
  });
}

void ForgetGather(c10d::Store& store, const std::string& key) {
  for (const char* part : {"/list", "/count", "/all"}) {
    store.deleteKey(absl::StrCat(key, part));
  }
}

}  // namespace tandem
