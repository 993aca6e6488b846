// Dimensions as products of atoms. The dimension of a tensor is a list of atoms, major to minor: a
// dimension that holds heads times the width of a head is [heads, width]. Two dimensions that are
// found to be the same share their atoms from then on. Where one of them is a product, the other
// one is cut at the same places, in every tensor that has it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::compiler {

class DimAtoms {
 public:
  // Atoms, major to minor. A dimension of size 1 has none.
  using Dim = std::vector<int>;

  // Returns a dimension of an atom of its own.
  Dim New(int64_t size);

  // Makes two dimensions of one size the same. The walk goes from the minor end. Where the smaller
  // atom does not divide the larger one, the walk ends, and the rest of the two dimensions stays
  // apart.
  void Unify(const Dim& a, const Dim& b);

  // Returns the dimension in atoms that are not cut, each the one that stands for its class.
  Dim Resolve(const Dim& dim) const;

  // Returns the size of an atom that Resolve returned.
  int64_t SizeOf(int atom) const { return atoms_[atom].size; }

 private:
  struct Atom {
    int64_t size = 0;
    int parent = -1;  // the atom that stands for this one; -1: the atom itself
    Dim parts;        // not empty: the atom is cut into these
  };

  int Root(int atom) const;

  std::vector<Atom> atoms_;
};

}  // namespace weir::compiler
