#include <ATen/ATen.h>

#include "tests/core/sim/operators/operator_case.h"

namespace tandem {
namespace {

using at::Tensor;
using at::indexing::None;
using at::indexing::Slice;

OperatorGroup ViewCases() {
  OperatorGroup group("views");
  const Tensor a = Normal({4, 6});
  group.Twice("view", {a}, [](In x) { return x[0].view({3, 8}).square(); });
  group.Twice("reshape", {a}, [](In x) {
    return x[0].t().reshape({8, 3}).square();
  });
  group.Forward("views themselves", {a}, [](In x) {
    return Tensors{
        x[0].t(),          x[0].view({2, 12}),  x[0].slice(1, 1, 5, 2),
        x[0].select(0, 3), x[0].unsqueeze(1),   x[0].expand({2, 4, 6}),
        x[0].diagonal(1),  x[0].unfold(1, 3, 2)};
  });
  group.Twice("permute", {Normal({2, 3, 4})}, [](In x) {
    return x[0].permute({2, 0, 1}).square();
  });
  group.Twice("expand", {Normal({4, 1})}, [](In x) {
    return x[0].expand({2, 4, 3}).square();
  });
  group.Twice("slice", {a}, [](In x) {
    return x[0].index({Slice(1, None, 2), Slice(None, -1)}).square();
  });
  group.Twice("chunk, split, unbind", {a}, [](In x) {
    return Tensors{x[0].chunk(3, 1)[1].square(), x[0].split(3)[1].square(),
                   x[0].unbind(1)[2].square()};
  });
  group.Twice("as_strided", {a}, [](In x) {
    return x[0].as_strided({3, 4}, {2, 1}, 1).square();
  });
  group.Twice("unfold", {a},
              [](In x) { return x[0].unfold(1, 3, 1).square(); });
  group.Twice("diagonal", {a}, [](In x) { return x[0].diagonal().square(); });
  group.Twice("movedim, squeeze, flatten", {Normal({2, 1, 3, 4})}, [](In x) {
    return x[0].movedim(3, 0).squeeze(2).flatten(1).square();
  });
  group.Twice("contiguous", {a},
              [](In x) { return x[0].t().contiguous().square(); });
  group.Forward("channels_last", {Normal({2, 3, 4, 5})}, [](In x) {
    return x[0].contiguous(at::MemoryFormat::ChannelsLast);
  });
  return group;
}

OperatorGroup JoiningCases() {
  OperatorGroup group("joining and moving");
  const Tensor a = Normal({4, 6});
  const Tensor b = Normal({4, 6});
  group.Twice("cat", {a, b}, [](In x) {
    return at::cat({x[0], x[1]}, 1).square();
  });
  group.Twice("stack", {a, b}, [](In x) {
    return at::stack({x[0], x[1]}, 1).square();
  });
  group.Twice("block_diag", {a, b}, [](In x) {
    return at::block_diag({x[0], x[1]}).square();
  });
  group.Twice("repeat, tile", {a}, [](In x) {
    return Tensors{x[0].repeat({2, 1}).square(), x[0].tile({1, 2}).square()};
  });
  group.Twice("repeat_interleave", {a},
              [](In x) { return x[0].repeat_interleave(2, 1).square(); });
  group.Twice("flip, roll, rot90", {a}, [](In x) {
    return Tensors{x[0].flip({0}).square(), x[0].roll(2, 1).square(),
                   x[0].rot90().square()};
  });
  group.Twice("tril, triu", {a}, [](In x) {
    return Tensors{x[0].tril(1).square(), x[0].triu(-1).square()};
  });
  group.Twice("diag_embed", {a},
              [](In x) { return at::diag_embed(x[0]).square(); });
  group.Twice("meshgrid", {Normal({3}), Normal({4})}, [](In x) {
    const Tensors grids = at::meshgrid({x[0], x[1]}, "ij");
    return grids[0].square() * grids[1];
  });
  group.Forward("made anew", {a}, [](In x) {
    const at::TensorOptions options = x[0].options();
    return Tensors{at::zeros_like(x[0]),
                   at::full({2, 3}, 7, options),
                   at::arange(1, 9, 2, options),
                   at::linspace(0, 1, 7, options),
                   at::eye(3, 4, options),
                   at::ones({2, 0}, options),
                   at::tril_indices(4, 3, 0, options.dtype(at::kLong))};
  });
  return group;
}

OperatorGroup IndexingCases() {
  OperatorGroup group("indexing");
  const Tensor a = Normal({6, 5});
  const Tensor rows = Integers(6, {4});
  const Tensor columns = Integers(5, {4});
  group.Twice("by tensors", {a, rows, columns}, [](In x) {
    return x[0].index({x[1], x[2]}).square();
  });
  group.Twice("by one tensor", {a, columns}, [](In x) {
    return x[0].index({Slice(), x[1]}).square();
  });
  group.Twice("by truths", {a, Truths({6})},
              [](In x) { return x[0].index({x[1]}).square(); });
  group.Twice("by a CPU tensor", {a}, [](In x) {
    return x[0].index({at::arange(4, at::kLong)}).square();
  });
  group.Twice("index_select", {a, rows},
              [](In x) { return x[0].index_select(0, x[1]).square(); });
  group.Twice("index_put", {a, rows, Normal({4, 5})}, [](In x) {
    return x[0].index_put({x[1]}, x[2], /*accumulate=*/true).square();
  });
  group.Twice("index_add", {a, rows, Normal({4, 5})},
              [](In x) { return x[0].index_add(0, x[1], x[2], 2).square(); });
  group.Twice("index_fill", {a, rows},
              [](In x) { return x[0].index_fill(0, x[1], 2).square(); });
  group.Twice("masked_fill", {a, Truths({6, 5})},
              [](In x) { return x[0].masked_fill(x[1], 3).square(); });
  group.Twice("masked_scatter", {a, Truths({6, 5}), Normal({30})},
              [](In x) { return x[0].masked_scatter(x[1], x[2]).square(); });
  group.Twice("take", {a, Integers(30, {7})},
              [](In x) { return x[0].take(x[1]).square(); });
  group.Twice("take_along_dim", {a, Integers(5, {6, 2})},
              [](In x) { return x[0].take_along_dim(x[1], 1).square(); });
  return group;
}

OperatorGroup ScatterCases() {
  OperatorGroup group("gather and scatter");
  const Tensor a = Normal({6, 5});
  const Tensor where = Integers(6, {3, 5});
  const Tensor source = Normal({3, 5});
  group.Twice("gather", {a, where},
              [](In x) { return x[0].gather(0, x[1]).square(); });
  group.Twice("scatter",
              {a, where.clamp(0, 0) + at::arange(3).view({3, 1}), source},
              [](In x) { return x[0].scatter(0, x[1], x[2]).square(); });
  group.Gradient("scatter of a number", {a, where},
                 [](In x) { return x[0].scatter(0, x[1], 2.5).square(); });
  group.Twice("scatter_add", {a, where, source},
              [](In x) { return x[0].scatter_add(0, x[1], x[2]).square(); });
  for (const char* reduce : {"sum", "mean", "amax", "prod"}) {
    group.Gradient(
        std::string("scatter_reduce, ") + reduce, {a, where, source},
        [reduce](In x) { return x[0].scatter_reduce(0, x[1], x[2], reduce); });
  }
  group.Gradient("index_reduce", {a, Integers(6, {3}), source}, [](In x) {
    return at::index_reduce(x[0], 0, x[1], x[2], "mean");
  });
  group.Twice("select_scatter, slice_scatter, diagonal_scatter",
              {a, Normal({5}), Normal({2, 5})}, [](In x) {
                return Tensors{x[0].select_scatter(x[1], 0, 2).square(),
                               x[0].slice_scatter(x[2], 0, 1, 3).square(),
                               x[0].diagonal_scatter(x[1]).square()};
              });
  return group;
}

OperatorGroup PaddingCases() {
  OperatorGroup group("padding and interpolation");
  const Tensor a = Normal({2, 3, 5, 6});
  for (const char* mode : {"constant", "reflect", "replicate", "circular"}) {
    group.Twice(std::string("pad, ") + mode, {a}, [mode](In x) {
      return at::pad(x[0], {1, 2, 2, 1}, mode).square();
    });
  }
  using Resize = Tensor (*)(In);
  const std::initializer_list<std::pair<const char*, Resize>> resizes = {
      {"upsample, nearest",
       [](In x) {
         return at::upsample_nearest2d(x[0], {9, 4});
       }},
      {"upsample, bilinear",
       [](In x) {
         return at::upsample_bilinear2d(x[0], {9, 4}, false);
       }},
      {"upsample, bicubic",
       [](In x) {
         return at::upsample_bicubic2d(x[0], {9, 4}, true);
       }},
      {"upsample, linear",
       [](In x) { return at::upsample_linear1d(x[0][0], {11}, false); }},
      {"pixel_shuffle", [](In x) {
         return at::pixel_shuffle(x[0].view({1, 12, 3, 5}), 2);
       }}};
  for (const auto& [name, resize] : resizes) {
    group.Twice(name, {a}, [call = resize](In x) { return call(x).square(); });
  }
  group.Gradient("grid_sampler", {a, Fraction({2, 4, 4, 2})}, [](In x) {
    return at::grid_sampler(x[0], x[1], 0, 0, false);
  });
  return group;
}

OperatorGroup ReductionGroup() {
  OperatorGroup group("reductions");
  const Tensor a = Normal({6, 5, 3});
  group.Twice("sum", {a}, [](In x) { return x[0].sum(); });
  group.Twice("sum of a dimension", {a}, [](In x) {
    return x[0].sum(at::IntArrayRef{0, 2});
  });
  group.Twice("sum of many", {Normal({300, 301})},
              [](In x) { return x[0].square().sum(); });
  group.Twice("mean", {a}, [](In x) { return x[0].mean({1}, true); });
  group.Twice("prod", {a}, [](In x) { return x[0].prod(1); });
  group.Twice("var", {a}, [](In x) { return x[0].var(1); });
  group.Twice("std", {a}, [](In x) { return x[0].std(at::IntArrayRef{0, 1}); });
  group.Twice("norm", {a}, [](In x) { return x[0].norm(2, {1}); });
  group.Twice("norm of order 3", {a}, [](In x) { return x[0].norm(3); });
  group.Twice("logsumexp", {a}, [](In x) { return x[0].logsumexp({1}); });
  group.Twice("trace", {Normal({4, 4})}, [](In x) { return x[0].trace(); });
  group.Gradient("max of all", {a}, [](In x) { return x[0].max(); });
  group.Gradient("max of a dimension", {a}, [](In x) { return x[0].max(1); });
  group.Gradient("amin, amax", {a}, [](In x) {
    return Tensors{x[0].amin({1}), x[0].amax({0, 2})};
  });
  group.Forward("aminmax", {a}, [](In x) { return at::aminmax(x[0]); });
  group.Gradient("median", {a}, [](In x) { return x[0].median(0); });
  group.Gradient("quantile", {Normal({31})},
                 [](In x) { return x[0].quantile(0.3); });
  group.Gradient("nansum, nanmean", {a}, [](In x) {
    return Tensors{x[0].sqrt().nansum(), x[0].log().nanmean(0)};
  });
  group.Forward("argmax, argmin", {a}, [](In x) {
    return Tensors{x[0].argmax(), x[0].argmin(1)};
  });
  group.Forward("any, all", {Truths({4, 5})}, [](In x) {
    return Tensors{x[0].any(), x[0].all(1), x[0].any(0)};
  });
  group.Forward("count_nonzero", {Integers(2, {4, 5})},
                [](In x) { return x[0].count_nonzero(at::IntArrayRef{1}); });
  group.Forward("of nothing", {Normal({0, 3})}, [](In x) {
    return Tensors{x[0].sum(), x[0].sum(0), x[0].mean(), x[0].prod(1)};
  });
  return group;
}

OperatorGroup CumulativeCases() {
  OperatorGroup group("cumulative");
  const Tensor a = Normal({6, 5});
  group.Twice("cumsum", {a}, [](In x) { return x[0].cumsum(0); });
  group.Twice("cumprod", {a}, [](In x) { return x[0].cumprod(1); });
  group.Twice("logcumsumexp", {a}, [](In x) { return x[0].logcumsumexp(0); });
  group.Twice("diff", {a}, [](In x) { return x[0].diff(1, 1); });
  group.Twice("trapezoid", {a}, [](In x) { return at::trapezoid(x[0]); });
  group.Gradient("cummax", {a}, [](In x) { return x[0].cummax(1); });
  group.Gradient("cummin", {a}, [](In x) { return x[0].cummin(0); });
  return group;
}

OperatorGroup SortingCases() {
  OperatorGroup group("sorting and sets");
  const Tensor a = Normal({6, 5});
  const Tensor integers = Integers(4, {4, 5});
  group.Twice("sort", {a}, [](In x) { return x[0].square().sort(1, true); });
  group.Gradient("topk", {a}, [](In x) { return x[0].topk(3, 0); });
  group.Gradient("kthvalue", {a}, [](In x) { return x[0].kthvalue(2); });
  group.Gradient("mode", {a}, [](In x) { return x[0].mode(1); });
  group.Forward("argsort, msort", {a}, [](In x) {
    return Tensors{x[0].argsort(int64_t{0}), x[0].msort()};
  });
  group.Forward("stable sort", {integers},
                [](In x) { return x[0].sort(/*stable=*/true, 1, false); });
  group.Forward("nonzero", {integers}, [](In x) { return x[0].nonzero(); });
  group.Forward("argwhere", {integers}, [](In x) { return x[0].argwhere(); });
  group.Forward("unique", {integers},
                [](In x) { return at::_unique2(x[0], true, true, true); });
  group.Forward("unique_consecutive", {integers},
                [](In x) { return at::unique_consecutive(x[0], true, true); });
  group.Forward("unique_dim", {integers},
                [](In x) { return at::unique_dim(x[0], 1, true, true, true); });
  group.Forward("searchsorted", {Normal({9}), a}, [](In x) {
    return at::searchsorted(std::get<0>(x[0].sort()), x[1]);
  });
  group.Forward("bincount, histc", {integers.flatten(), a}, [](In x) {
    return Tensors{x[0].bincount({}, 6), x[1].histc(5, -2, 2)};
  });
  group.Gradient("masked_select", {a, Truths({6, 5})},
                 [](In x) { return x[0].masked_select(x[1]); });
  return group;
}

}  // namespace

std::vector<OperatorGroup> ShapeCases() {
  return {ViewCases(), JoiningCases(), IndexingCases(), ScatterCases(),
          PaddingCases()};
}

std::vector<OperatorGroup> ReductionCases() {
  return {ReductionGroup(), CumulativeCases(), SortingCases()};
}

}  // namespace tandem
