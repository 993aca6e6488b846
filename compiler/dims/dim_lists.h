// The lists of dimensions that stand in the text of a function: in the types of inputs and
// parameters, and in attributes that list dimensions.
// Thread rule: one thread; a DimList points into the function.
#pragma once

#include <string>
#include <vector>

#include "proto/graph.pb.h"

namespace weir::compiler {

// Returns "a, b" of the type "f32[a, b]"; empty without brackets.
std::string DimsOf(const std::string& type);

struct DimList {
  std::string* text = nullptr;  // "f32[a, b]", or "a, b" of an attribute
  bool in_type = false;
  std::string where = {};  // for errors: "function block, input x"

  std::string dims() const;  // "a, b"
  void Replace(const std::string& dims) const;
};

// Returns the lists in the order of the text. A type without brackets has none.
std::vector<DimList> DimListsOf(proto::Function* function);

// Returns whether the attribute `attr` of `op` lists dimensions. An unknown op has no such
// attribute.
bool ListsDims(const std::string& op, const std::string& attr);

}  // namespace weir::compiler
