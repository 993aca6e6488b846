#include "runtime/base/tensor_slice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {

int64_t NumElements(const Shape& shape) {
  int64_t product = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return -1;
  }
  return product;
}

std::string ToText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

TensorSlice TensorSlice::Whole(DType dtype, Shape shape) {
  Shape zeros(shape.size(), 0);
  return TensorSlice{dtype, shape, std::move(zeros), shape};
}

std::string ToText(const TensorSlice& slice) {
  std::string text = absl::StrCat(Name(slice.dtype), ToText(slice.shape));
  if (!slice.is_whole()) {
    absl::StrAppend(&text, " at ", ToText(slice.offset), " of ", ToText(slice.global_shape));
  }
  return text;
}

}  // namespace weir
