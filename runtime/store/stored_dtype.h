// The element types of the safetensors format, by the names that files use. Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/dtype.h"

namespace weir::store {

// Returns the bytes per element of a type of the format that has whole bytes; 0: unknown.
int64_t StoredWidth(const std::string& dtype);
// Returns the name of a type: "F32".
const char* StoredName(DType dtype);
// Returns the type of a name: "F32" is kF32. Names of other types have none.
std::optional<DType> DTypeFromStoredName(const std::string& dtype);
// Returns whether values of the type convert between each other: F32, BF16 and F16.
bool IsStoredReal(const std::string& dtype);

}  // namespace weir::store
