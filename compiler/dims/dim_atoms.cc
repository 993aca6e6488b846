#include "compiler/dims/dim_atoms.h"

#include <algorithm>

namespace weir::compiler {

DimAtoms::Dim DimAtoms::New(int64_t size) {
  if (size == 1) return {};
  atoms_.push_back({size, -1, {}});
  return {static_cast<int>(atoms_.size()) - 1};
}

int DimAtoms::Root(int atom) const {
  while (atoms_[atom].parent >= 0) atom = atoms_[atom].parent;
  return atom;
}

DimAtoms::Dim DimAtoms::Resolve(const Dim& dim) const {
  Dim resolved;
  for (int atom : dim) {
    const int root = Root(atom);
    if (atoms_[root].parts.empty()) {
      resolved.push_back(root);
    } else {
      const Dim parts = Resolve(atoms_[root].parts);
      resolved.insert(resolved.end(), parts.begin(), parts.end());
    }
  }
  return resolved;
}

void DimAtoms::Unify(const Dim& a, const Dim& b) {
  Dim left = a, right = b;
  while (!left.empty() && !right.empty()) {
    // The last round may have joined or cut atoms that still stand in the two lists.
    left = Resolve(left);
    right = Resolve(right);
    int x = left.back(), y = right.back();
    left.pop_back();
    right.pop_back();
    if (x == y) continue;
    if (atoms_[x].size == atoms_[y].size) {
      // The older atom stands for both.
      atoms_[std::max(x, y)].parent = std::min(x, y);
      continue;
    }
    const bool x_is_larger = atoms_[x].size > atoms_[y].size;
    const int larger = x_is_larger ? x : y, smaller = x_is_larger ? y : x;
    const int64_t quotient = atoms_[larger].size / atoms_[smaller].size;
    if (quotient * atoms_[smaller].size != atoms_[larger].size) return;
    const int major = New(quotient)[0];
    atoms_[larger].parts = {major, smaller};
    (x_is_larger ? left : right).push_back(major);
  }
}

}  // namespace weir::compiler
