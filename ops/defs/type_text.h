// The text form of tensor types and its parser:
//
//   f32[batch, sequence, heads=4/1, head_dim=16]
//
// An item is name[=size[/unit]]; omitted parts come from a table of named dimensions. An item
// "heads*head_dim" is a dimension called "heads" with the product of the sizes; its unit is the
// unit of heads times the sizes of the other names. "f32[]" is a scalar. Graphs (declarations) and
// ops (attributes such as reshape's `to`) share this parser. The parser knows nothing about
// layouts. Thread rule: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sbp/layout.h"

namespace weir::ops {

using DimTable = std::map<std::string, sbp::TensorDim>;

// Parses the items between the brackets. Refuses, with W0311 to W0314: a malformed item, a name
// that is neither in the table nor given a size (the message offers the nearest name), a size below
// 1 or beyond 63 bits, a size that is no multiple of its unit, a tensor too large to count.
absl::StatusOr<std::vector<sbp::TensorDim>> ParseDims(const std::string& text,
                                                      const DimTable& table);

// Parses a whole type.
absl::StatusOr<sbp::TensorType> ParseType(const std::string& text, const DimTable& table);

// A DeclaredRange bounds the values of an integer tensor: each value is from 0 to below `below`.
struct DeclaredRange {
  int64_t below = 0;
  std::string text;  // as declared: "vocab" or "500"
};

struct DeclaredType {
  sbp::TensorType type;
  std::optional<DeclaredRange> range;
};

// Parses the type of an input as a graph declares it: a whole type whose element type may carry a
// range in angle brackets. The range is a named dimension of the table or a number:
//
//   i32<vocab>[batch, sequence]     i32<500>[batch]
//
// Refuses, with W0900 and W0901 and as ParseType: a range of a type that is not i32, a range that
// is neither a dimension nor a number from 1 to 2^31.
absl::StatusOr<DeclaredType> ParseDeclaredType(const std::string& text, const DimTable& table);

// Returns "batch=8/1, heads=64/16": sizes and units are written out, so that ParseDims reads the
// text back with any table.
std::string DimsText(const std::vector<sbp::TensorDim>& dims);

}  // namespace weir::ops
