#include "runtime/store/stored_dtype.h"

#include <map>

namespace weir::store {

int64_t StoredWidth(const std::string& dtype) {
  static const std::map<std::string, int64_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  auto it = kBytes.find(dtype);
  return it == kBytes.end() ? 0 : it->second;
}

const char* StoredName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kI32: return "I32";
    case DType::kBool: return "BOOL";
  }
  return "?";
}

std::optional<DType> DTypeFromStoredName(const std::string& dtype) {
  for (const DType known : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool})
    if (dtype == StoredName(known)) return known;
  return std::nullopt;
}

bool IsStoredReal(const std::string& dtype) {
  const std::optional<DType> known = DTypeFromStoredName(dtype);
  return known.has_value() && IsReal(*known);
}

}  // namespace weir::store
