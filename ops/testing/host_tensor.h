// A HostTensor is a small dense tensor in memory for tests of ops, aligned as kernels require, with
// guard bytes behind the data. Cut and Merge cut tensors by layouts and put them together again,
// element by element and without any of the product's boxing code.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "sbp/layout.h"

namespace weir::ops {

class HostTensor {
 public:
  // Sets every byte to 0xff, which is NaN in real tensors, so that elements that a kernel leaves
  // out show.
  explicit HostTensor(TensorSlice slice);
  explicit HostTensor(const sbp::TensorType& type)
      : HostTensor(TensorSlice::Whole(type.dtype, type.shape())) {}

  const TensorSlice& slice() const { return slice_; }
  int64_t size() const { return slice_.num_elements(); }
  void* data() { return bytes_.data() + offset_; }
  const void* data() const { return bytes_.data() + offset_; }
  HostTensor(const HostTensor& other);
  HostTensor& operator=(const HostTensor& other);

  double Get(int64_t i) const;
  void Set(int64_t i, double value);
  bool GuardIntact() const;
  bool SameBits(const HostTensor& other) const;

 private:
  void Allocate();
  TensorSlice slice_;
  std::vector<uint8_t> bytes_;
  int64_t offset_ = 0;  // of the first aligned byte
};

// Returns the shard of `whole` that each rank of the mesh holds under `layout`. Addends of P(sum)
// and the lesser values of P(max) are drawn from `key`.
std::vector<HostTensor> Cut(const HostTensor& whole, const sbp::TensorType& type,
                            const sbp::Layout& layout, const sbp::Mesh& mesh, uint64_t key);

// Returns the whole tensor. An error names the ranks whose equal copies differ, or an element that
// is covered too little or too often.
absl::StatusOr<HostTensor> Merge(const std::vector<HostTensor>& shards, const sbp::TensorType& type,
                                 const sbp::Layout& layout, const sbp::Mesh& mesh);

// Returns "" if all elements agree within tolerance * (1 + |expected|), where 0 requires equal
// values. Otherwise returns the first difference.
std::string Difference(const HostTensor& found, const HostTensor& expected, double tolerance);

}  // namespace weir::ops
