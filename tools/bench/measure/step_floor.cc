#include "tools/bench/measure/step_floor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using Stack = std::vector<c10::IValue>;

// Calls of one operator with operands of one kind.
struct Product {
  c10::OperatorName op;
  Stack operands;  // with memory of their own
  int64_t calls = 0;
};

// What calls of another operator move through memory.
struct Pass {
  int64_t bytes = 0;
  int64_t calls = 0;
};

struct Records {
  absl::Mutex mutex;
  std::map<std::pair<std::string, std::string>, Product> products
      ABSL_GUARDED_BY(mutex);
  std::map<std::string, Pass> passes ABSL_GUARDED_BY(mutex);
};

Records& AllRecords() {
  static auto* const records = new Records;
  return *records;
}

// An operator that runs on this thread.
struct Running : at::ObserverContext {
  Stack operands;
  bool is_product = false;
  bool calls_products = false;
  bool is_counted = false;  // by what it calls
  Running* outer = nullptr;
};

thread_local Running* innermost = nullptr;

bool IsStridedTensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().layout() == at::kStrided;
}

std::string Describe(const Stack& operands) {
  std::ostringstream text;
  for (const c10::IValue& each : operands) {
    text << (text.tellp() > 0 ? ", " : "");
    if (IsStridedTensor(each)) {
      const at::Tensor& tensor = each.toTensor();
      text << tensor.scalar_type() << tensor.sizes() << '/' << tensor.strides();
    } else if (each.isTensor()) {
      text << "None";
    } else {
      text << each;
    }
  }
  return text.str();
}

c10::IValue OnesLike(const c10::IValue& value) {
  if (!IsStridedTensor(value)) return value;
  const at::Tensor& tensor = value.toTensor();
  int64_t length = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    length += std::max<int64_t>(tensor.size(i) - 1, 0) * tensor.stride(i);
  }
  return at::ones({length}, tensor.options().requires_grad(false))
      .as_strided(tensor.sizes(), tensor.strides(), /*storage_offset=*/0);
}

void AddProduct(const c10::OperatorName& op, const Stack& operands) {
  const at::DisableRecordFunctionGuard not_the_steps;
  std::pair<std::string, std::string> key(c10::toString(op),
                                          Describe(operands));
  Records& records = AllRecords();
  absl::MutexLock lock(&records.mutex);
  const auto [at, is_new] =
      records.products.try_emplace(std::move(key), Product{op, {}, 0});
  ++at->second.calls;
  if (!is_new) return;
  const at::NoGradGuard no_grad;
  for (const c10::IValue& each : operands) {
    at->second.operands.push_back(OnesLike(each));
  }
}

// Bytes of a tensor, or a list of them, without what is not large.
int64_t LargeBytes(const c10::IValue& value) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    const int64_t size =
        tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
    if (size >= kLargeTensor) bytes += size;
  };
  if (value.isTensor()) add(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) add(each);
  }
  return bytes;
}

// Whether it writes over what it changes.
bool OnlyWrites(const c10::OperatorName& op) {
  return op.name == "aten::copy_" || op.name == "aten::fill_" ||
         op.name == "aten::zero_" || absl::StrContains(op.overload_name, "out");
}

bool IsView(const c10::IValue& result, const Stack& operands) {
  return IsStridedTensor(result) &&
         absl::c_any_of(operands, [&](const c10::IValue& operand) {
           return IsStridedTensor(operand) &&
                  result.toTensor().is_alias_of(operand.toTensor());
         });
}

// What a call reads and writes. The schema says which operands it changes.
int64_t MovedBytes(const c10::FunctionSchema& schema, const Stack& operands,
                   const std::vector<c10::IValue>& results) {
  int64_t written = 0;
  int64_t read = 0;
  const bool only_writes = OnlyWrites(schema.operator_name());
  const size_t known = std::min(operands.size(), schema.arguments().size());
  for (size_t i = 0; i < known; ++i) {
    const int64_t bytes = LargeBytes(operands[i]);
    const c10::Argument& argument = schema.arguments()[i];
    const c10::AliasInfo* const alias = argument.alias_info();
    const bool is_written = alias != nullptr && alias->isWrite();
    if (is_written) written += bytes;
    if (!is_written || !only_writes) read += bytes;
  }
  bool makes_views_alone = written == 0;
  for (const c10::IValue& result : results) {
    if (IsView(result, operands)) continue;
    makes_views_alone = false;
    written += LargeBytes(result);
  }
  return makes_views_alone ? 0 : read + written;
}

// Whether there was anything to count.
bool AddPass(const c10::OperatorName& op, const Stack& operands,
             const std::vector<c10::IValue>& results) {
  const auto found = c10::Dispatcher::singleton().findSchema(op);
  // Memory alone is what "empty" gives.
  if (!found.has_value() || absl::StartsWith(op.name, "aten::empty")) {
    return false;
  }
  const int64_t bytes = MovedBytes(found->schema(), operands, results);
  if (bytes == 0) return false;
  Records& records = AllRecords();
  absl::MutexLock lock(&records.mutex);
  Pass& pass = records.passes[op.name];
  pass.bytes += bytes;
  ++pass.calls;
  return true;
}

std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
  // Autograd's own nodes ("ConvolutionBackward0") are recorded, too, but have
  // no operands.
  if (!function.operator_name().has_value()) return nullptr;
  auto running = std::make_unique<Running>();
  running->operands.assign(function.inputs().begin(), function.inputs().end());
  running->is_product = IsProduct(function.name());
  for (Running* each = innermost; each != nullptr; each = each->outer) {
    each->calls_products |= running->is_product;
  }
  running->outer = std::exchange(innermost, running.get());
  return running;
}

bool IsInProduct(const Running& running) {
  for (const Running* each = running.outer; each != nullptr;
       each = each->outer) {
    if (each->is_product && !each->calls_products) return true;
  }
  return false;
}

// Whether it counts, itself.
bool AddCall(const at::RecordFunction& function, const Running& running) {
  const c10::OperatorName op = *function.operator_name();
  if (running.is_product) {
    if (running.calls_products) return false;
    AddProduct(op, running.operands);
    return true;
  }
  return !running.is_counted && !IsInProduct(running) &&
         AddPass(op, running.operands, function.outputs());
}

void End(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* running = static_cast<Running*>(context);
  innermost = running->outer;
  if (!AddCall(function, *running)) return;
  for (Running* each = innermost; each != nullptr; each = each->outer) {
    each->is_counted = true;
  }
}

absl::Status Record(absl::FunctionRef<absl::Status()> step) {
  {
    absl::MutexLock lock(&AllRecords().mutex);
    AllRecords().products.clear();
    AllRecords().passes.clear();
  }
  innermost = nullptr;  // of a step that ended with an exception
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(Begin, End)
                                .needsInputs(true)
                                .needsOutputs(true)
                                .scopes({at::RecordScope::FUNCTION}));
  const auto remove = absl::MakeCleanup([&] { at::removeCallback(handle); });
  return step();
}

double ProductMs(const Product& product) {
  constexpr int kRepeats = 7;
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      product.op.name.c_str(), product.op.overload_name.c_str());
  const at::NoGradGuard no_grad;
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    Stack stack = product.operands;
    const Usage before = Usage::Now();
    op.callBoxed(&stack);
    // The first makes what is kept for the next ones.
    if (i > 0) times.push_back((Usage::Now() - before).wall_ms);
  }
  return Median(times);
}

}  // namespace

bool IsProduct(std::string_view op) {
  for (const char* part :
       {"onvolution", "mm", "_linear_", "attention", "matrix_product"}) {
    if (absl::StrContains(op, part)) return true;
  }
  return false;
}

namespace {

// The greatest number comes first.
void SortDown(nlohmann::json& list,
              absl::FunctionRef<double(const nlohmann::json&)> number) {
  std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
    return number(a) > number(b);
  });
}

}  // namespace

absl::StatusOr<nlohmann::json> StepFloor(absl::FunctionRef<absl::Status()> step,
                                         absl::FunctionRef<void()> recorded) {
  using nlohmann::json;
  TANDEM_RETURN_IF_ERROR(Record(step));
  recorded();
  Records& records = AllRecords();
  absl::MutexLock lock(&records.mutex);
  json products = json::array();
  double ms = 0;
  for (const auto& [key, product] : records.products) {
    const double each = ProductMs(product);
    ms += each * static_cast<double>(product.calls);
    products.push_back({{"name", key.first},
                        {"operands", key.second},
                        {"ms", each},
                        {"calls", static_cast<double>(product.calls)}});
  }
  json passes = json::array();
  int64_t bytes = 0;
  for (const auto& [name, pass] : records.passes) {
    bytes += pass.bytes;
    passes.push_back(
        {{"name", name}, {"bytes", pass.bytes}, {"calls", pass.calls}});
  }
  records.products.clear();
  SortDown(products, [](const json& each) {
    return each.at("ms").get<double>() * each.at("calls").get<double>();
  });
  SortDown(passes,
           [](const json& each) { return each.at("bytes").get<double>(); });
  return json{
      {"ms", ms}, {"products", products}, {"passes", passes}, {"bytes", bytes}};
}

double MemoryBandwidth() {
  constexpr int64_t kNumbers = int64_t{1} << 25;  // 128 MiB
  constexpr int kRepeats = 7;
  const at::NoGradGuard no_grad;
  at::Tensor numbers = at::ones({kNumbers}, at::kFloat);
  std::vector<double> ms;
  for (int i = 0; i <= kRepeats; ++i) {
    const Usage before = Usage::Now();
    numbers.add_(1);
    // The first has the pages to find.
    if (i > 0) ms.push_back((Usage::Now() - before).wall_ms);
  }
  return 2 * static_cast<double>(numbers.nbytes()) / (Median(ms) * 1e-3);
}

}  // namespace tandem
