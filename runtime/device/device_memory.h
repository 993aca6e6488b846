// DeviceMemory is the memory of a device: blocks with addresses that the device's kernels read and
// write, and copies between the blocks and the host. The device decides whether the host may use
// such an address itself, so code outside runtime/device copies, or asks for a view. Not here: the
// layout inside a block, which plans decide. Thread rule: allocation by any thread; the bytes
// follow the actor protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weir::device {

// A DeviceBlock is a part of a device's memory, and its destructor frees that part. The memory must
// outlive the block.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  // `release` frees the memory of the block.
  DeviceBlock(char* base, int64_t bytes, std::function<void()> release)
      : base_(base), bytes_(bytes), release_(std::move(release)) {}
  ~DeviceBlock() {
    if (release_) release_();
  }
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    release_.swap(other.release_);
    return *this;
  }

  char* base() const { return base_; }  // an address of the device; null if bytes() is 0
  int64_t bytes() const { return bytes_; }

 private:
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void()> release_;
};

// A HostView shows bytes of device memory to the host: in place where the host can read them,
// otherwise as a copy.
class HostView {
 public:
  HostView(const char* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  HostView(std::unique_ptr<char[]> copy, int64_t bytes)
      : copy_(std::move(copy)), data_(copy_.get()), bytes_(bytes) {}

  const char* data() const { return data_; }
  int64_t size() const { return bytes_; }
  absl::Span<const char> bytes() const { return absl::MakeConstSpan(data_, bytes_); }

 private:
  std::unique_ptr<char[]> copy_;  // null: in place
  const char* data_;
  int64_t bytes_;
};

class DeviceMemory {
 public:
  enum class Reach : uint8_t {
    kDevice,  // the device's kernels
    kShared,  // the kernels, the host and the transport: staging buffers
  };

  virtual ~DeviceMemory() = default;

  // Returns a zeroed block, aligned to a page at least. kResourceExhausted (W0520) if there is not
  // enough memory.
  virtual absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) = 0;

  // Lets kernels reach memory of the host that somebody else owns, for as long as the returned
  // block lives; the owner keeps the memory for longer. Blocks whose memory shares a page end
  // together. kResourceExhausted (W0520) if the system does not allow it.
  virtual absl::StatusOr<DeviceBlock> Adopt(char* base, int64_t bytes) {
    return DeviceBlock(base, bytes, nullptr);
  }

  // Returns whether the host may read and write the bytes at an address of a kDevice block.
  virtual bool host_visible() const = 0;

  // Copies are done on return. Precondition: no work that touches the bytes is under way. The
  // device's side (`to` of CopyIn, `from` of CopyOut, both of Copy) is in blocks of this memory, or
  // in any memory that the transport has given.
  virtual void CopyIn(char* to, const void* from, int64_t bytes) = 0;
  virtual void CopyOut(void* to, const char* from, int64_t bytes) const = 0;
  virtual void Copy(char* to, const char* from, int64_t bytes) = 0;
  virtual void Zero(char* at, int64_t bytes) = 0;

  // The view is valid as long as the bytes are not written.
  HostView View(const char* at, int64_t bytes) const;
  // Lets `fill` write `bytes` bytes that are then at `at`. `fill` gets memory of the host, with
  // undefined contents. If `fill` fails, the bytes at `at` are undefined.
  absl::Status Fill(char* at, int64_t bytes, absl::FunctionRef<absl::Status(char* host)> fill);
};

}  // namespace weir::device
