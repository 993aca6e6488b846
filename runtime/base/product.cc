#include "runtime/base/product.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// Returns whether each number is at most twice the other. The comparison is exact, so that all
// machines agree.
bool AreNear(int64_t a, int64_t b) { return a > 0 && b > 0 && a <= 2 * b && b <= 2 * a; }

// Returns the product of the three factors by which sizes differ, which orders classes as the sum
// of their logarithms does. Doubles divide and multiply to the same bits everywhere.
double DistanceOf(const ProductClass& a, const ProductClass& b) {
  const auto factor = [](int64_t x, int64_t y) {
    return static_cast<double>(std::max(x, y)) / static_cast<double>(std::min(x, y));
  };
  return factor(a.m, b.m) * factor(a.n, b.n) * factor(a.k, b.k);
}

}  // namespace

std::string Name(ProductWay way) {
  switch (way) {
    case ProductWay::kAutomatic: return "automatic";
    case ProductWay::kPanels: return "panels";
    case ProductWay::kPlain: return "plain";
    case ProductWay::kPanelsInF32: return "panels-f32";
    case ProductWay::kPlainInF32: return "plain-f32";
  }
  return "";
}

std::optional<ProductWay> ProductWayFromName(const std::string& name) {
  for (const ProductWay way : kProductWays) {
    if (Name(way) == name) return way;
  }
  return std::nullopt;
}

std::string ProductWayNames() {
  std::string text;
  for (const ProductWay way : kProductWays) {
    if (!text.empty()) text += way == ProductWay::kPlainInF32 ? " or " : ", ";
    text += Name(way);
  }
  return text;
}

std::string ToText(const ProductClass& product) {
  return absl::StrCat(product.m, " x ", product.k, " by ", product.k, " x ", product.n,
                      product.a_transposed ? ", a transposed" : "",
                      product.b_transposed ? ", b transposed" : "", ", ", Name(product.operands),
                      product.result == product.operands ? "" : " to ",
                      product.result == product.operands ? "" : Name(product.result));
}

const ProductChoice* ProductChoices::Nearest(const ProductClass& product) const {
  const ProductChoice* nearest = nullptr;
  double least = 0;
  for (const ProductChoice& choice : choices_) {
    const ProductClass& of = choice.of;
    if (of.operands != product.operands || of.result != product.result ||
        of.a_transposed != product.a_transposed || of.b_transposed != product.b_transposed ||
        !AreNear(of.m, product.m) || !AreNear(of.n, product.n) || !AreNear(of.k, product.k))
      continue;
    const double distance = DistanceOf(of, product);
    if (nearest == nullptr || distance < least) {
      nearest = &choice;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace weir
