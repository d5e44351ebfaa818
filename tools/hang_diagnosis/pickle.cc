#include "tools/hang_diagnosis/pickle.h"

#include <cstdint>
#include <cstring>
#include <limits>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// The opcodes of pickletools.
constexpr char kProtocol[] = "\x80\x02";
constexpr char kStop = '.';
constexpr char kNone = 'N';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kInt = 'J';      // 4 bytes, the lowest first
constexpr char kLong = '\x8a';  // how many bytes, the lowest first
constexpr char kFloat = 'G';    // 8 bytes, the highest first
constexpr char kText = 'X';     // 4 bytes of length
constexpr char kList = ']';
constexpr char kDict = '}';
constexpr char kMark = '(';
constexpr char kAppends = 'e';
constexpr char kSetItems = 'u';

void AppendBytes(uint64_t number, int bytes, std::string* pickle) {
  for (int i = 0; i < bytes; ++i) {
    pickle->push_back(static_cast<char>(number >> (8 * i)));
  }
}

void AppendInteger(int64_t number, std::string* pickle) {
  if (number >= std::numeric_limits<int32_t>::min() &&
      number <= std::numeric_limits<int32_t>::max()) {
    pickle->push_back(kInt);
    AppendBytes(static_cast<uint64_t>(number), 4, pickle);
    return;
  }
  pickle->push_back(kLong);
  pickle->push_back(8);
  AppendBytes(static_cast<uint64_t>(number), 8, pickle);
}

void AppendFloat(double number, std::string* pickle) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  pickle->push_back(kFloat);
  for (int i = 7; i >= 0; --i) {
    pickle->push_back(static_cast<char>(bits >> (8 * i)));
  }
}

void AppendText(const std::string& text, std::string* pickle) {
  pickle->push_back(kText);
  AppendBytes(text.size(), 4, pickle);
  pickle->append(text);
}

void Append(const Json& value, std::string* pickle);

void AppendList(const Json& list, std::string* pickle) {
  pickle->push_back(kList);
  pickle->push_back(kMark);
  for (const Json& each : list) Append(each, pickle);
  pickle->push_back(kAppends);
}

void AppendDict(const Json& dict, std::string* pickle) {
  pickle->push_back(kDict);
  pickle->push_back(kMark);
  for (const auto& [key, value] : dict.items()) {
    AppendText(key, pickle);
    Append(value, pickle);
  }
  pickle->push_back(kSetItems);
}

void Append(const Json& value, std::string* pickle) {
  if (value.is_null()) {
    pickle->push_back(kNone);
  } else if (value.is_boolean()) {
    pickle->push_back(value.get<bool>() ? kTrue : kFalse);
  } else if (value.is_number_integer()) {
    AppendInteger(value.get<int64_t>(), pickle);
  } else if (value.is_number()) {
    AppendFloat(value.get<double>(), pickle);
  } else if (value.is_string()) {
    AppendText(value.get<std::string>(), pickle);
  } else if (value.is_array()) {
    AppendList(value, pickle);
  } else {
    AppendDict(value, pickle);
  }
}

}  // namespace

std::string Pickled(const Json& value) {
  std::string pickle = kProtocol;
  Append(value, &pickle);
  pickle.push_back(kStop);
  return pickle;
}

}  // namespace tandem
