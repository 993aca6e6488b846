// A GPU for tests of NCCL, by the functions of NVIDIA's driver, which is opened at run time. So the
// test is built and started on any machine, and can be carried to one that has a GPU. Thread rule:
// one thread.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/collective/collective.h"

namespace weir::collective {

// The first GPU, with its primary context current in the thread that opened it, and one stream.
class TestGpu final : public StreamMarks {
 public:
  // Returns the GPU, or says why there is none.
  static absl::StatusOr<std::unique_ptr<TestGpu>> Open() {
    auto gpu = std::unique_ptr<TestGpu>(new TestGpu());
    const absl::Status status = gpu->Start();
    if (!status.ok()) return status;
    return gpu;
  }
  // Tells whether there is a GPU, and leaves it alone.
  static absl::Status Probe() {
    TestGpu gpu;
    return gpu.Load();
  }
  ~TestGpu() override {
    if (context_ == nullptr) return;
    for (const uint64_t block : blocks_) mem_free_(block);
    for (const auto& [mark, event] : events_) event_destroy_(event);
    stream_destroy_(stream_);
    context_release_(device_);
  }

  device::CudaStream stream() const { return {stream_}; }
  // Returns whether the stream has done all its work.
  absl::StatusOr<bool> IsDone() {
    const int result = stream_query_(stream_);
    if (result == kNotReady) return false;
    return result == 0 ? absl::StatusOr<bool>(true) : Failure("cuStreamQuery", result);
  }
  char* Allocate(int64_t bytes) {
    uint64_t block = 0;
    if (mem_alloc_(&block, bytes) != 0) return nullptr;
    blocks_.push_back(block);
    return reinterpret_cast<char*>(block);
  }
  // These wait for the device.
  int Write(char* to, const void* from, int64_t bytes) {
    return copy_in_(reinterpret_cast<uint64_t>(to), from, bytes);
  }
  int Read(void* to, const char* from, int64_t bytes) {
    return copy_out_(to, reinterpret_cast<uint64_t>(from), bytes);
  }

  absl::StatusOr<int64_t> Mark(device::CudaStream stream) override {
    void* event = nullptr;
    if (const int result = event_create_(&event, kEventWithoutTiming); result != 0)
      return Failure("cuEventCreate", result);
    if (const int result = event_record_(event, stream.handle); result != 0)
      return Failure("cuEventRecord", result);
    events_[num_marks_] = event;
    return num_marks_++;
  }
  absl::StatusOr<bool> IsPast(int64_t mark) override {
    const int result = event_query_(events_.at(mark));
    if (result == kNotReady) return false;
    if (result != 0) return Failure("cuEventQuery", result);
    Drop(mark);
    return true;
  }
  void Drop(int64_t mark) override {
    event_destroy_(events_.at(mark));
    events_.erase(mark);
  }

 private:
  static constexpr int kNotReady = 600;
  static constexpr unsigned kEventWithoutTiming = 2;
  static constexpr unsigned kStreamThatWaitsForNone = 1;

  TestGpu() = default;

  static absl::Status Failure(const std::string& call, int result) {
    return absl::UnavailableError(absl::StrCat(call, " gives error ", result, " of the driver"));
  }

  absl::Status Load() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return absl::UnavailableError(::dlerror());
    std::string missing;
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::decay_t<decltype(*function)>>(::dlsym(driver, name));
      if (*function == nullptr) missing = name;
    };
    find("cuInit", &init_);
    find("cuDeviceGet", &device_get_);
    find("cuDevicePrimaryCtxRetain", &context_retain_);
    find("cuDevicePrimaryCtxRelease_v2", &context_release_);
    find("cuCtxSetCurrent", &context_set_);
    find("cuMemAlloc_v2", &mem_alloc_);
    find("cuMemFree_v2", &mem_free_);
    find("cuMemcpyHtoD_v2", &copy_in_);
    find("cuMemcpyDtoH_v2", &copy_out_);
    find("cuStreamCreate", &stream_create_);
    find("cuStreamDestroy_v2", &stream_destroy_);
    find("cuStreamQuery", &stream_query_);
    find("cuEventCreate", &event_create_);
    find("cuEventDestroy_v2", &event_destroy_);
    find("cuEventRecord", &event_record_);
    find("cuEventQuery", &event_query_);
    if (!missing.empty())
      return absl::UnavailableError(absl::StrCat("the driver has no ", missing));
    if (const int result = init_(0); result != 0) return Failure("cuInit", result);
    const int result = device_get_(&device_, 0);
    return result == 0 ? absl::OkStatus() : Failure("cuDeviceGet", result);
  }

  absl::Status Start() {
    if (const absl::Status status = Load(); !status.ok()) return status;
    if (const int result = context_retain_(&context_, device_); result != 0)
      return Failure("cuDevicePrimaryCtxRetain", result);
    if (const int result = context_set_(context_); result != 0)
      return Failure("cuCtxSetCurrent", result);
    const int result = stream_create_(&stream_, kStreamThatWaitsForNone);
    return result == 0 ? absl::OkStatus() : Failure("cuStreamCreate", result);
  }

  int (*init_)(unsigned) = nullptr;
  int (*device_get_)(int*, int) = nullptr;
  int (*context_retain_)(void**, int) = nullptr;
  int (*context_release_)(int) = nullptr;
  int (*context_set_)(void*) = nullptr;
  int (*mem_alloc_)(uint64_t*, size_t) = nullptr;
  int (*mem_free_)(uint64_t) = nullptr;
  int (*copy_in_)(uint64_t, const void*, size_t) = nullptr;
  int (*copy_out_)(void*, uint64_t, size_t) = nullptr;
  int (*stream_create_)(void**, unsigned) = nullptr;
  int (*stream_destroy_)(void*) = nullptr;
  int (*stream_query_)(void*) = nullptr;
  int (*event_create_)(void**, unsigned) = nullptr;
  int (*event_destroy_)(void*) = nullptr;
  int (*event_record_)(void*, void*) = nullptr;
  int (*event_query_)(void*) = nullptr;

  int device_ = 0;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::vector<uint64_t> blocks_;
  std::map<int64_t, void*> events_;  // by mark
  int64_t num_marks_ = 0;
};

}  // namespace weir::collective
