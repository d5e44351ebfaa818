#include "core/base/tensor_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tandem {
namespace {

int64_t TotalLength(const IndexRanges& ranges) {
  int64_t total = 0;
  for (const IndexRange& each : ranges) total += each.length;
  return total;
}

std::string RangesText(const IndexRanges& ranges) {
  return absl::StrJoin(ranges, ",",
                       [](std::string* out, const IndexRange& range) {
                         absl::StrAppend(out, range.begin, "+", range.length);
                       });
}

bool ParseRange(absl::string_view text, IndexRange* range) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, '+');
  return numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &range->begin) &&
         absl::SimpleAtoi(numbers[1], &range->length);
}

// Nothing is added up that is not known to be within the dimension.
bool AreRangesOf(const IndexRanges& ranges, int64_t size) {
  if (size == 0) return ranges == IndexRanges{{0, 0}};
  int64_t at = 0;
  for (const IndexRange& each : ranges) {
    if (each.begin < at || each.length < 1 || each.begin > size ||
        each.length > size - each.begin) {
      return false;
    }
    at = each.end();
  }
  return !ranges.empty();
}

// Indices `inner` of those that `outer` has, side by side.
IndexRanges RangesWithin(const IndexRanges& outer, const IndexRanges& inner) {
  IndexRanges own = {};
  int64_t at = 0;
  for (const IndexRange& each : outer) {
    own.push_back({at, each.length});
    at += each.length;
  }
  IndexRanges ranges;
  for (const CommonRange& each : CommonRanges(own, inner)) {
    int64_t begin = each.in_first;
    size_t i = 0;
    while (begin >= outer[i].length) begin -= outer[i++].length;
    ranges.push_back({outer[i].begin + begin, each.length});
  }
  if (ranges.empty()) ranges.push_back({outer[0].begin, 0});
  return ranges;
}

void CopyFrom(size_t dim, const at::Tensor& source, const TensorShard& from,
              const at::Tensor& target, const TensorShard& to) {
  if (dim == from.size()) {
    target.copy_(source);
    return;
  }
  const auto along = static_cast<int64_t>(dim);
  for (const CommonRange& each : CommonRanges(from[dim], to[dim])) {
    CopyFrom(dim + 1, source.narrow(along, each.in_first, each.length), from,
             target.narrow(along, each.in_second, each.length), to);
  }
}

}  // namespace

TensorShard WholeShard(const std::vector<int64_t>& sizes) {
  TensorShard shard;
  for (const int64_t size : sizes) shard.push_back({{0, size}});
  return shard;
}

std::vector<int64_t> ShardSizes(const TensorShard& shard) {
  std::vector<int64_t> sizes;
  for (const IndexRanges& each : shard) sizes.push_back(TotalLength(each));
  return sizes;
}

absl::Status CheckShard(const TensorShard& shard,
                        const std::vector<int64_t>& sizes) {
  if (shard.size() != sizes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shard of ", shard.size(), " dimensions where [",
                     absl::StrJoin(sizes, ", "), "] has ", sizes.size()));
  }
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (AreRangesOf(shard[dim], sizes[dim])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "ranges '", RangesText(shard[dim]), "' of dimension ", dim,
        ", expected rising ones within its ", sizes[dim], " indices"));
  }
  return absl::OkStatus();
}

TensorShard ShardOfShard(const TensorShard& outer, const TensorShard& inner) {
  TensorShard shard;
  for (size_t dim = 0; dim < outer.size(); ++dim) {
    shard.push_back(RangesWithin(outer[dim], inner[dim]));
  }
  return shard;
}

std::vector<CommonRange> CommonRanges(const IndexRanges& first,
                                      const IndexRanges& second) {
  std::vector<CommonRange> common;
  size_t i = 0;
  size_t j = 0;
  int64_t before_i = 0;  // indices of ranges before these
  int64_t before_j = 0;
  while (i < first.size() && j < second.size()) {
    const IndexRange& a = first[i];
    const IndexRange& b = second[j];
    const int64_t begin = std::max(a.begin, b.begin);
    const int64_t end = std::min(a.end(), b.end());
    if (begin < end) {
      common.push_back({before_i + begin - a.begin, before_j + begin - b.begin,
                        end - begin});
    }
    if (a.end() <= b.end()) {
      before_i += a.length;
      ++i;
    } else {
      before_j += b.length;
      ++j;
    }
  }
  return common;
}

at::Tensor SelectShard(const at::Tensor& whole, const TensorShard& shard) {
  at::Tensor selected = whole;
  for (size_t dim = 0; dim < shard.size(); ++dim) {
    const auto along = static_cast<int64_t>(dim);
    std::vector<at::Tensor> parts;
    for (const IndexRange& each : shard[dim]) {
      parts.push_back(selected.narrow(along, each.begin, each.length));
    }
    selected = parts.size() == 1 ? parts[0] : at::cat(parts, along);
  }
  return selected;
}

void CopyCommon(const at::Tensor& source, const TensorShard& from,
                const at::Tensor& target, const TensorShard& to) {
  const at::NoGradGuard no_grad;
  CopyFrom(0, source, from, target, to);
}

std::string FormatShard(const TensorShard& shard) {
  return absl::StrJoin(shard, ";",
                       [](std::string* out, const IndexRanges& ranges) {
                         absl::StrAppend(out, RangesText(ranges));
                       });
}

bool ParseShard(absl::string_view text, TensorShard* shard) {
  shard->clear();
  for (const auto dimension : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    IndexRanges& ranges = shard->emplace_back();
    for (const auto range : absl::StrSplit(dimension, ',')) {
      if (!ParseRange(range, &ranges.emplace_back())) return false;
    }
  }
  return true;
}

}  // namespace tandem
