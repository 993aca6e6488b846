// A product is c[m, n] = a[m, k] b[k, n]. ProductClass says which products are alike, and
// ProductWay names the ways in which the kernels of a CPU compute a product
// (ops/kernels/cpu/gemm.h). Ways may differ in the last bits of c, so all ranks of a job must take
// one way for products of one class: the choice is a part of the job, and of its plans. `weir
// calibrate --keep` measures the ways. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace weir {

enum class ProductWay : uint8_t {
  kAutomatic,    // shape and machine decide
  kPanels,       // b is packed into panels first
  kPlain,        // b is read in place
  kPanelsInF32,  // operands of bf16 become f32 first; then as kPanels
  kPlainInF32,   // operands of bf16 become f32 first; then as kPlain
};
inline constexpr ProductWay kProductWays[] = {ProductWay::kAutomatic, ProductWay::kPanels,
                                              ProductWay::kPlain, ProductWay::kPanelsInF32,
                                              ProductWay::kPlainInF32};

// "automatic", "panels", "plain", "panels-f32", "plain-f32".
std::string Name(ProductWay way);
std::optional<ProductWay> ProductWayFromName(const std::string& name);
// Returns "automatic, panels, ... or plain-f32", for messages.
std::string ProductWayNames();

struct ProductClass {
  DType operands = DType::kF32, result = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;  // a is stored as [k, m], b as [n, k]

  friend auto operator<=>(const ProductClass&, const ProductClass&) = default;
};

// "512 x 256 by 256 x 1024, b transposed, bf16 to f32".
std::string ToText(const ProductClass& product);

struct ProductChoice {
  ProductClass of;
  ProductWay way = ProductWay::kAutomatic;
  double gain = 0;  // times as fast as kAutomatic, for people; 0: not measured
};

// ProductChoices holds the ways for the products of a job.
class ProductChoices {
 public:
  ProductChoices() = default;
  explicit ProductChoices(std::vector<ProductChoice> choices) : choices_(std::move(choices)) {}

  bool empty() const { return choices_.empty(); }
  const std::vector<ProductChoice>& choices() const { return choices_; }

  // Returns the choice whose class is nearest to `product`: types and storage are equal, and each
  // of m, n and k differs by a factor of 2 at most. The distance is the sum of the logarithms of
  // the three factors, and of equally near choices the first one counts. Null: no class is that
  // near, and the way is kAutomatic.
  const ProductChoice* Nearest(const ProductClass& product) const;
  ProductWay WayOf(const ProductClass& product) const {
    const ProductChoice* nearest = Nearest(product);
    return nearest == nullptr ? ProductWay::kAutomatic : nearest->way;
  }

 private:
  std::vector<ProductChoice> choices_;
};

// The attribute of a call of a product in a plan that names its way; absent: automatic.
inline constexpr char kProductWayAttr[] = "way";

}  // namespace weir
