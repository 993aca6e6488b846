// A Tensor is a tensor of an ONNX file whose elements are known: a weight, or a constant that the
// importer computes with. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/onnx.pb.h"

namespace weir::onnx {

// Element types by their numbers in ONNX.
enum class Element : uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kBF16 = 16,
};
std::string Name(Element element);  // "f32", "string", "type 17"
bool IsReal(Element element);       // f16, bf16, f32, f64: Weir computes with all of them as reals
bool IsInteger(Element element);    // of up to 64 bits

// The most elements of a tensor that the importer holds in memory to compute with. Weights may be
// larger.
inline constexpr int64_t kFoldedElementsMax = int64_t{1} << 24;
// The most elements of a weight, and the largest size of a dimension.
inline constexpr int64_t kWeightElementsMax = int64_t{1} << 40;
inline constexpr size_t kRankMax = 64;

struct Tensor {
  Element element = Element::kF32;
  std::vector<int64_t> shape;
  // Reals are in `reals`, integers and truth values (0 and 1) in `integers`, row by row. The other
  // list is empty.
  std::vector<float> reals;
  std::vector<int64_t> integers;

  bool is_real() const { return IsReal(element); }
  int64_t size() const { return static_cast<int64_t>(is_real() ? reals.size() : integers.size()); }
  double number(int64_t i) const { return is_real() ? reals[i] : static_cast<double>(integers[i]); }
};

// Returns the number of elements; -1 if there are more than kRankMax sizes, a size is negative or
// beyond kWeightElementsMax, or the number is beyond 2^62.
int64_t Count(const std::vector<int64_t>& shape);

Tensor MakeIntegers(std::vector<int64_t> values);  // a list, of type i64
Tensor MakeReals(std::vector<float> values, std::vector<int64_t> shape);

// Says where the elements of tensors in other files are looked for.
struct ExternalFiles {
  std::string folder;  // of the model's file; empty: tensors have no other files
};

// Returns the tensor of a message. `where` names the tensor in errors. kInvalidArgument: W0831 if
// shape, type and elements do not agree, the type is text or unknown, or there are more than
// `elements_max` elements; W0832 if its file is not a regular file in the folder of the model or in
// a folder below it, with links resolved, or is too short.
absl::StatusOr<Tensor> Decode(const proto::OnnxTensor& tensor, const ExternalFiles& files,
                              int64_t elements_max, const std::string& where);

}  // namespace weir::onnx
