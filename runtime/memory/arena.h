// The memory of one rank: one block, made when a plan is loaded and cut by the plan's
// offsets. Pages come from the system zeroed and are backed when first touched.
// Not here: allocation inside the block; the compiler has done that.
// Thread rule: the owner's; what lies in it follows the actor protocol.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace weir {

class Arena {
 public:
  // Aligned to a page at least. kResourceExhausted (W0520) if the system refuses.
  static absl::StatusOr<Arena> Create(int64_t bytes);

  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;

  char* base() const { return base_; }  // null if bytes() is 0
  int64_t bytes() const { return bytes_; }

 private:
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  void* mapping_ = nullptr;
  int64_t mapping_bytes_ = 0;
};

}  // namespace weir
