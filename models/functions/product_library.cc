#include "models/functions/product_library.h"

#include <ATen/Parallel.h>

#include <string>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/autotune/kernel_choices.h"

namespace tandem {
namespace {

// How a matrix lies in memory, as far as it decides how fast it is read.
enum class Order : char {
  kRows = 'n',
  kColumns = 't',
  kRowsOfLonger = 'N',
  kColumnsOfLonger = 'T',
  kScattered = 's',
};

Order MemoryOrder(const at::Tensor& matrix) {
  if (matrix.stride(1) == 1) {
    return matrix.stride(0) == matrix.size(1) ? Order::kRows
                                              : Order::kRowsOfLonger;
  }
  if (matrix.stride(0) == 1) {
    return matrix.stride(1) == matrix.size(0) ? Order::kColumns
                                              : Order::kColumnsOfLonger;
  }
  return Order::kScattered;
}

// m, k, n, orders of a and b, with a bias, threads.
using Question = std::tuple<int64_t, int64_t, int64_t, Order, Order, bool, int>;

std::string QuestionText(const Question& question) {
  const auto& [m, k, n, a, b, has_bias, threads] = question;
  return absl::StrCat("product ", m, " x ", k, " x ", n, " ",
                      std::string({static_cast<char>(a), static_cast<char>(b)}),
                      has_bias ? " with bias" : "", " on ", threads,
                      threads == 1 ? " thread" : " threads");
}

struct Answers {
  uint64_t generation = 0;
  absl::flat_hash_map<Question, bool> one_dnn;
};

// A thread's own: nobody waits for another's look at them.
absl::flat_hash_map<Question, bool>& CurrentAnswers() {
  static thread_local Answers answers;
  const uint64_t now = KernelChoices::OfProcess().generation();
  if (answers.generation != now) answers = {now, {}};
  return answers.one_dnn;
}

}  // namespace

int64_t LeastProductForOneDnn() {
  return KernelChoices::OfProcess().measures() ? kLeastMeasuredProduct
                                               : kLeastOneDnnProduct;
}

bool FasterIsOneDnn(const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& bias, absl::FunctionRef<void()> by_mkl,
                    absl::FunctionRef<void()> by_one_dnn) {
  const Question question = {a.size(0),
                             a.size(1),
                             b.size(1),
                             MemoryOrder(a),
                             MemoryOrder(b),
                             bias.defined(),
                             at::get_num_threads()};
  const auto found = CurrentAnswers().find(question);
  if (found != CurrentAnswers().end()) return found->second;
  const bool rule = a.size(0) * a.size(1) * b.size(1) >= kLeastOneDnnProduct;
  const bool answer =
      KernelChoices::OfProcess().Pick(
          QuestionText(question),
          {{"mkl", [&] { by_mkl(); }}, {"onednn", [&] { by_one_dnn(); }}},
          rule ? 1 : 0) == 1;
  CurrentAnswers()[question] = answer;
  return answer;
}

}  // namespace tandem
