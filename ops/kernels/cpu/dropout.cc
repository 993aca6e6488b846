// dropout keeps or drops an element by the element's own random number. The number depends on the
// element's place in the whole tensor, so shards and threads agree.
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/dropout_rule.h"
#include "ops/kernels/shape/global_numbers.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/dropout.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

using VU = hn::Vec<DU>;

#if HWY_TARGET != HWY_SCALAR
// Computes the low and high words of the 64-bit products a * b, per lane.
HWY_INLINE void WideMul(VU a, VU b, VU* low, VU* high) {
  const DU d;
  const hn::Repartition<uint64_t, DU> d64;
  auto even = hn::MulEven(a, b);
  auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), b);
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// Computes the words of Philox4x32-10 for consecutive counters, equal to those of RandomBits
// (runtime/base/random.h): words[4 * j + w] is word w of counter + j.
HWY_INLINE void RandomWords(uint64_t key, uint64_t counter, uint32_t* words) {
  const DU d;
  const uint32_t low_start = static_cast<uint32_t>(counter);
  VU lanes = hn::Iota(d, 0);
  VU c0 = hn::Add(hn::Set(d, low_start), lanes);
  VU carry = hn::IfThenElseZero(hn::Lt(c0, hn::Set(d, low_start)), hn::Set(d, 1));
  VU c1 = hn::Add(hn::Set(d, static_cast<uint32_t>(counter >> 32)), carry);
  VU c2 = hn::Zero(d), c3 = hn::Zero(d);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    VU low0, high0, low2, high2;
    WideMul(c0, hn::Set(d, 0xD2511F53u), &low0, &high0);
    WideMul(c2, hn::Set(d, 0xCD9E8D57u), &low2, &high2);
    c0 = hn::Xor(hn::Xor(high2, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c1 = low2;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
}
#else
void RandomWords(uint64_t key, uint64_t counter, uint32_t* words) {
  WriteRandomBits(key, counter, words);
}
#endif

// Processes n elements of one contiguous stretch; the first element has number `number`.
void DropRange(const DropoutRule& rule, DType dtype, const void* x_any, void* y_any,
               uint64_t number, int64_t n) {
  const int64_t words_at_once = 4 * NumLanes();
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(x_any);
    T* y = static_cast<T*>(y_any);
    const DU du;
    const VF factor = hn::Set(DF(), rule.factor);
    const VU threshold = hn::Set(du, rule.threshold);
    HWY_ALIGN uint32_t words[4 * kLanesMax];
    auto drop = [&](VF v, VU bits) HWY_ATTR {
      auto dropped = hn::Lt(hn::ShiftRight<8>(bits), threshold);
      return hn::IfThenZeroElse(hn::RebindMask(DF(), dropped), hn::Mul(v, factor));
    };
    for (int64_t i = 0; i < n;) {
      const uint64_t counter = (number + i) >> 2;
      const int64_t skip = static_cast<int64_t>((number + i) & 3);
      RandomWords(rule.key, counter, words);
      const int64_t end = std::min(n, i + words_at_once - skip);
      for (int64_t w = skip; i < end; i += NumLanes(), w += NumLanes()) {
        const int64_t left = end - i;
        if (left >= NumLanes()) {
          StoreF(drop(LoadF(x + i), hn::LoadU(du, words + w)), y + i);
          continue;
        }
        HWY_ALIGN uint32_t tail[kLanesMax] = {};
        for (int64_t j = 0; j < left; ++j) tail[j] = words[w + j];
        StoreTail(drop(LoadTail(x + i, left), hn::Load(du, tail)), y + i, left);
      }
      i = end;
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(DropRange);

namespace {

class DropoutKernel final : public Kernel {
 public:
  DropoutKernel(const TensorSlice& x, double rate)
      : dtype_(x.dtype),
        rule_(DropoutRuleOf(rate)),
        global_elements_(NumElements(x.global_shape)),
        numbers_(x),
        pieces_{x.num_elements(), kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    DropoutRule rule = rule_;
    rule.key = MixKey(args.random_key, static_cast<uint64_t>(args.step));
    const int64_t base = args.micro_batch * global_elements_;
    const int64_t stretch = numbers_.stretch();
    const char* x = static_cast<const char*>(args.inputs[0]);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece);) {
        const int64_t into = i % stretch;
        const int64_t n = std::min(pieces_.end(piece) - i, stretch - into);
        HWY_DYNAMIC_DISPATCH(DropRange)
        (rule, dtype_, x + i * SizeOf(dtype_), y + i * SizeOf(dtype_),
         static_cast<uint64_t>(base + numbers_.StretchStart(i / stretch) + into), n);
        i += n;
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const DropoutRule rule_;
  const int64_t global_elements_;
  const GlobalNumbers numbers_;
  const Pieces pieces_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeDropout(const KernelSpec& spec) {
  SpecCheck check(spec);
  const double rate = spec.attrs.Real("rate", -1);
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.out(0), "x and y");
  check.SameShape(check.in(0), check.out(0), "x and y")
      .Expect(0 <= rate && rate <= 1, "a rate from 0 to 1");
  if (!check.ok()) return check.status();
  return std::make_unique<DropoutKernel>(check.in(0), rate);
}

WEIR_REGISTER_KERNEL("cpu", "dropout", MakeDropout);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
