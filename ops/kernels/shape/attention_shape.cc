#include "ops/kernels/shape/attention_shape.h"

#include <cmath>

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

// Reads the mask, whose axes are as long as those of the scores, or 1.
AttentionMask ReadMask(const AttentionShape& shape, const TensorSlice& mask, SpecCheck& check) {
  AttentionMask read{true, mask.dtype};
  check.Expect(mask.dtype == DType::kBool || mask.dtype == shape.dtype, "a mask of bool or like q");
  check.Expect(mask.shape.size() == 4, "a mask of batch, heads, queries and keys");
  if (!check.ok()) return read;
  const int64_t sizes[] = {shape.batch, shape.heads, shape.length, shape.keys};
  int64_t* strides[] = {&read.batch_stride, &read.head_stride, &read.query_stride,
                        &read.key_stride};
  int64_t stride = 1;
  for (size_t d = 4; d-- > 0;) {
    check.Expect(mask.shape[d] == 1 || mask.shape[d] == sizes[d],
                 "a mask as long as the scores along each axis, or 1");
    *strides[d] = mask.shape[d] == 1 ? 0 : stride;
    stride *= mask.shape[d];
  }
  return read;
}

// Reads q, k and v (inputs 0 to 2), the mask (input `mask`, which may be absent) and the
// attributes, and checks these.
AttentionShape CheckAttention(const KernelSpec& spec, int mask, SpecCheck& check) {
  const TensorSlice &q = check.in(0), &k = check.in(1), &v = check.in(2);
  check.Real(q, "q").SameType(q, k, "q and k").SameType(q, v, "q and v").SameShape(k, v, "k and v");
  check.Expect(q.shape.size() == 4 && k.shape.size() == 4,
               "q[b, s, h, d], k[b, s, g, d] and v[b, s, g, d]");
  AttentionShape shape;
  if (!check.ok()) return shape;
  shape.causal = spec.attrs.Bool("causal", true);
  shape.window = spec.attrs.Int("window", 0);
  check.Expect(q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3],
               "one batch and width of q and k");
  check.Expect(!shape.causal || q.shape[1] == k.shape[1], "one length of q and k if causal");
  check.Expect(shape.window >= 0 && (shape.causal || shape.window == 0), "a window only if causal");
  check.Expect(q.shape[1] == q.global_shape[1] && k.shape[1] == k.global_shape[1] &&
                   q.shape[3] == q.global_shape[3],
               "whole sequences and heads");
  check.Expect(k.shape[1] > 0 || q.shape[1] == 0, "a key for the queries");
  check.Expect(k.shape[2] > 0 ? q.shape[2] % k.shape[2] == 0 : q.shape[2] == 0,
               "heads of q a multiple of heads of k");
  shape.batch = q.shape[0];
  shape.length = q.shape[1];
  shape.keys = k.shape[1];
  shape.heads = q.shape[2];
  shape.groups = k.shape[2];
  shape.width = q.shape[3];
  shape.dtype = q.dtype;
  const double scale = spec.attrs.Real("scale", 0);
  const double by_width = shape.width > 0 ? 1.0 / std::sqrt(static_cast<double>(shape.width)) : 1.0;
  shape.scale = static_cast<float>(scale == 0 ? by_width : scale);
  if (check.HasIn(mask)) shape.mask = ReadMask(shape, check.in(mask), check);
  return shape;
}

}  // namespace

absl::StatusOr<AttentionShape> ReadAttention(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 4).Outputs(1, 2);
  const AttentionShape shape = CheckAttention(spec, 3, check);
  check.SameType(check.in(0), check.out(0), "q and o")
      .SameShape(check.in(0), check.out(0), "q and o");
  if (check.HasOut(1)) {
    check.Is(check.out(1), DType::kF32, "lse");
    check.Expect(check.out(1).shape == Shape{shape.batch, shape.heads, shape.length},
                 "lse[b, h, s]");
  }
  if (!check.ok()) return check.status();
  return shape;
}

absl::StatusOr<AttentionShape> ReadAttentionGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(6, 7).Outputs(3, 4);
  const AttentionShape shape = CheckAttention(spec, 6, check);
  check.SameType(check.in(0), check.in(3), "q and o")
      .SameShape(check.in(0), check.in(3), "q and o");
  check.SameType(check.in(0), check.in(5), "q and do")
      .SameShape(check.in(0), check.in(5), "q and do");
  check.Is(check.in(4), DType::kF32, "lse");
  check.Expect(check.in(4).shape == Shape{shape.batch, shape.heads, shape.length}, "lse[b, h, s]");
  for (int i = 0; i < 3; ++i) {
    check.SameType(check.in(i), check.out(i), "an operand and its gradient");
    check.SameShape(check.in(i), check.out(i), "an operand and its gradient");
  }
  if (check.HasOut(3)) {
    check.Is(check.out(3), DType::kF32, "dscores");
    check.Expect(check.out(3).shape == Shape{shape.batch, shape.heads, shape.length, shape.keys},
                 "dscores[b, h, s, t]");
  }
  if (!check.ok()) return check.status();
  return shape;
}

}  // namespace weir::kernels
