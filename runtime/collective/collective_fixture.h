// Tests of collectives share these: groups of ranks to try, and numbers. Thread rule: a fixture by
// the test's thread, a seat by the thread of its rank.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/real.h"
#include "runtime/collective/collective.h"

namespace weir::collective {

// A CollectiveSeat is what one rank of a test has: a device with a stream and memory, and a way to
// the other ranks.
class CollectiveSeat {
 public:
  virtual ~CollectiveSeat() = default;
  virtual CollectiveLibrary* library() = 0;
  virtual transport::Exchange* exchange() = 0;
  virtual device::CudaStream stream() = 0;
  virtual StreamMarks* marks() { return nullptr; }
  // Returns memory of the device that stays as long as the seat.
  virtual char* Allocate(int64_t bytes) = 0;
  virtual void Write(char* to, const void* from, int64_t bytes) = 0;
  virtual void Read(void* to, const char* from, int64_t bytes) = 0;
  // Waits until the stream is done or the communicator has an error, and returns the error.
  virtual absl::Status Finish(Communicator* communicator) = 0;
};

class CollectiveFixture {
 public:
  virtual ~CollectiveFixture() = default;
  // Returns why there is no group of `size` ranks here; "" if there is.
  virtual std::string Missing(int size) const { return ""; }
  // After this time a rank gives up an operation that does not end.
  virtual int64_t overdue_ms() const = 0;
  // Calls `body` for each rank of the group that is in this process, each on a thread of its own.
  virtual void OnEachRank(int size,
                          const std::function<void(int rank, CollectiveSeat* seat)>& body) = 0;
};
using CollectiveFixtureFactory = std::unique_ptr<CollectiveFixture> (*)();

// Returns the numbers as elements of the type. They are whole if the type is i32 or bool.
inline std::vector<char> Encoded(DType dtype, const std::vector<double>& numbers) {
  std::vector<char> bytes(numbers.size() * SizeOf(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    char* const at = bytes.data() + i * SizeOf(dtype);
    const int32_t whole = static_cast<int32_t>(numbers[i]);
    switch (dtype) {
      case DType::kF32:
      case DType::kBF16:
      case DType::kF16: SetRealAt(dtype, at, 0, static_cast<float>(numbers[i])); break;
      case DType::kI32: std::memcpy(at, &whole, 4); break;
      case DType::kBool: *at = whole != 0 ? 1 : 0; break;
    }
  }
  return bytes;
}

inline std::vector<double> Decoded(DType dtype, const std::vector<char>& bytes) {
  std::vector<double> numbers(bytes.size() / SizeOf(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const char* const at = bytes.data() + i * SizeOf(dtype);
    int32_t whole;
    switch (dtype) {
      case DType::kF32:
      case DType::kBF16:
      case DType::kF16: numbers[i] = RealAt(dtype, at, 0); break;
      case DType::kI32: std::memcpy(&whole, at, 4), numbers[i] = whole; break;
      case DType::kBool: numbers[i] = *at; break;
    }
  }
  return numbers;
}

}  // namespace weir::collective
