#include "ops/kernels/shape/cached_attention_shape.h"

#include <cmath>

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {

absl::StatusOr<CachedAttentionShape> ReadCachedAttention(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(5, 5).Outputs(3, 3);
  if (!check.ok()) return check.status();
  const TensorSlice &q = check.in(0), &k = check.in(1), &table = check.in(4), &keys = check.out(1);
  check.Real(q, "q").SameType(q, k, "q and k").SameType(q, check.in(2), "q and v");
  check.SameShape(k, check.in(2), "k and v").Is(check.in(3), DType::kI32, "positions");
  check.Is(table, DType::kI32, "table");
  check.SameType(q, check.out(0), "q and o").SameShape(q, check.out(0), "q and o");
  check.SameType(q, keys, "q and keys").SameType(q, check.out(2), "q and values");
  check.SameShape(keys, check.out(2), "keys and values");
  check.Expect(q.shape.size() == 4 && k.shape.size() == 4 && keys.shape.size() == 4,
               "q[b, s, h, d], k[b, s, g, d] and keys[p, t, g, d]");
  CachedAttentionShape shape;
  if (!check.ok()) return check.status();
  check.Expect(q.shape[0] == k.shape[0] && q.shape[1] == k.shape[1] && q.shape[3] == k.shape[3],
               "one batch, length and width of q and k");
  check.Expect(check.in(3).shape == Shape{q.shape[0], q.shape[1]}, "positions[b, s]");
  check.Expect(table.shape.size() == 2 && table.shape[0] == q.shape[0] &&
                   table.shape[1] == table.global_shape[1],
               "table[b, n] with all entries");
  check.Expect(keys.shape[0] == k.shape[0] * spec.attrs.Int("pages") &&
                   keys.shape[1] == spec.attrs.Int("page_size") && keys.shape[2] == k.shape[2] &&
                   keys.shape[3] == k.shape[3],
               "whole pages of keys for each row, with the heads and the width of k");
  check.Expect(q.shape[1] == q.global_shape[1] && q.shape[3] == q.global_shape[3],
               "whole sequences and heads");
  check.Expect(k.shape[2] > 0 ? q.shape[2] % k.shape[2] == 0 : q.shape[2] == 0,
               "heads of q a multiple of heads of k");
  if (!check.ok()) return check.status();
  shape.batch = q.shape[0];
  shape.length = q.shape[1];
  shape.heads = q.shape[2];
  shape.groups = k.shape[2];
  shape.width = q.shape[3];
  shape.entries = table.shape[1];
  shape.page_size = keys.shape[1];
  shape.first_page = keys.offset[0];
  shape.num_pages = keys.shape[0];
  shape.dtype = q.dtype;
  shape.window = spec.attrs.Int("window", 0);
  const double scale = spec.attrs.Real("scale", 0);
  const double by_width = shape.width > 0 ? 1.0 / std::sqrt(static_cast<double>(shape.width)) : 1.0;
  shape.scale = static_cast<float>(scale == 0 ? by_width : scale);
  return shape;
}

}  // namespace weir::kernels
