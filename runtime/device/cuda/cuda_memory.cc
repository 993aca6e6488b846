#include "runtime/device/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"

namespace weir::device {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kStagingBytes = int64_t{4} << 20;

std::string BytesAndText(int64_t bytes) {
  return absl::StrCat(bytes, " bytes (", BytesText(static_cast<double>(bytes)), ")");
}

}  // namespace

absl::Status StatusOf(const CudaApi& api, int gpu, CudaResult result, const char* what) {
  if (result == CudaResult::kSuccess) return absl::OkStatus();
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {"W0553", absl::StrCat("GPU ", gpu), absl::StrCat(what, " to succeed"), api.TextOf(result),
       "runtime.device_depth=1, which does one act at a time, to find the act"});
}

absl::StatusOr<std::unique_ptr<CudaMemory>> CudaMemory::Create(CudaApi* api, int gpu) {
  std::unique_ptr<CudaMemory> memory(new CudaMemory(api, gpu));
  WEIR_RETURN_IF_ERROR(StatusOf(*api, gpu, api->SetDevice(gpu), "cudaSetDevice"));
  MutexLock lock(&memory->mutex_);
  WEIR_RETURN_IF_ERROR(StatusOf(*api, gpu,
                                api->CreateStream(CudaApi::Priority::kNormal, &memory->stream_),
                                "cudaStreamCreate"));
  WEIR_RETURN_IF_ERROR(
      StatusOf(*api, gpu, api->MallocHost(&memory->staging_, kStagingBytes), "cudaHostAlloc"));
  return memory;
}

CudaMemory::~CudaMemory() {
  MutexLock lock(&mutex_);
  if (staging_ != nullptr) api_.FreeHost(staging_);
  if (stream_.handle != nullptr) api_.DestroyStream(stream_);
}

absl::Status CudaMemory::OutOfMemory(int64_t bytes, Reach reach) const {
  if (reach == Reach::kShared) {
    return ErrorOf(absl::StatusCode::kResourceExhausted,
                   {"W0520", absl::StrCat("pinned memory of the host for GPU ", gpu_),
                    BytesAndText(bytes), "that the system does not give so much",
                    "a higher limit of locked memory (ulimit -l), or fewer ranks on this host"});
  }
  int64_t free_bytes = 0, all = 0;
  api_.GetMemory(&free_bytes, &all);
  return ErrorOf(absl::StatusCode::kResourceExhausted,
                 {"W0520", absl::StrCat("memory of GPU ", gpu_), BytesAndText(bytes),
                  absl::StrCat(BytesAndText(free_bytes), " free of ", BytesAndText(all)),
                  "more devices, fewer ranks on this GPU, or a job that needs less: weir plan "
                  "shows what takes the memory"});
}

absl::StatusOr<DeviceBlock> CudaMemory::Allocate(int64_t bytes, Reach reach) {
  if (bytes < 0)
    return CodedError(absl::StatusCode::kInvalidArgument, "W0520",
                      "memory of a device: negative size");
  if (bytes == 0) return DeviceBlock();
  const bool shared = reach == Reach::kShared;
  WEIR_RETURN_IF_ERROR(StatusOf(api_, gpu_, api_.SetDevice(gpu_), "cudaSetDevice"));
  // CUDA aligns small blocks to less than a page.
  const int64_t with_page = bytes + kPage;
  char* memory = nullptr;
  const CudaResult result =
      shared ? api_.MallocHost(&memory, with_page) : api_.Malloc(&memory, with_page);
  if (result == CudaResult::kOutOfMemory) return OutOfMemory(bytes, reach);
  WEIR_RETURN_IF_ERROR(StatusOf(api_, gpu_, result, shared ? "cudaHostAlloc" : "cudaMalloc"));
  char* const base = memory + (kPage - reinterpret_cast<intptr_t>(memory) % kPage) % kPage;
  DeviceBlock block(base, bytes, [this, memory, shared] {
    api_.SetDevice(gpu_);
    shared ? api_.FreeHost(memory) : api_.Free(memory);
  });
  Zero(base, bytes);
  WEIR_RETURN_IF_ERROR(fault());
  return block;
}

// Registers the pages that kernels cannot reach yet, in runs. Several edges may lie in one page,
// and memory of another rank of this process may be pinned already.
absl::StatusOr<DeviceBlock> CudaMemory::Adopt(char* base, int64_t bytes) {
  if (bytes == 0) return DeviceBlock();
  WEIR_RETURN_IF_ERROR(StatusOf(api_, gpu_, api_.SetDevice(gpu_), "cudaSetDevice"));
  char* const end = base + bytes;
  auto runs = std::make_shared<std::vector<char*>>();
  DeviceBlock block(base, bytes, [this, runs] {
    api_.SetDevice(gpu_);
    for (char* run : *runs) api_.UnregisterHost(run);
  });
  for (char* page = base - reinterpret_cast<intptr_t>(base) % kPage; page < end;) {
    char* const run = page;
    while (page < end && !api_.IsReachable(page)) page += kPage;
    if (page == run) {
      page += kPage;
      continue;
    }
    const CudaResult result = api_.RegisterHost(run, page - run);
    // Another rank of this process may have been faster.
    if (result == CudaResult::kHostMemoryAlreadyRegistered) continue;
    if (result == CudaResult::kOutOfMemory) return OutOfMemory(bytes, Reach::kShared);
    WEIR_RETURN_IF_ERROR(StatusOf(api_, gpu_, result, "cudaHostRegister"));
    runs->push_back(run);
  }
  return block;
}

void CudaMemory::MoveNow(void* to, const void* from, int64_t bytes) const {
  fault_.Update(StatusOf(api_, gpu_, api_.SetDevice(gpu_), "cudaSetDevice"));
  fault_.Update(StatusOf(api_, gpu_, api_.Copy(to, from, bytes, stream_), "cudaMemcpyAsync"));
  fault_.Update(StatusOf(api_, gpu_, api_.SynchronizeStream(stream_), "cudaStreamSynchronize"));
}

void CudaMemory::CopyIn(char* to, const void* from, int64_t bytes) {
  MutexLock lock(&mutex_);
  for (int64_t at = 0; at < bytes; at += kStagingBytes) {
    const int64_t part = std::min(kStagingBytes, bytes - at);
    std::memcpy(staging_, static_cast<const char*>(from) + at, static_cast<size_t>(part));
    MoveNow(to + at, staging_, part);
  }
}

void CudaMemory::CopyOut(void* to, const char* from, int64_t bytes) const {
  {
    MutexLock lock(&mutex_);
    for (int64_t at = 0; at < bytes; at += kStagingBytes) {
      const int64_t part = std::min(kStagingBytes, bytes - at);
      MoveNow(staging_, from + at, part);
      std::memcpy(static_cast<char*>(to) + at, staging_, static_cast<size_t>(part));
    }
  }
  // After a failure the bytes are those of no step, and a NaN in every format says so.
  if (!fault().ok()) std::memset(to, 0xff, static_cast<size_t>(bytes));
}

void CudaMemory::Copy(char* to, const char* from, int64_t bytes) {
  if (bytes == 0) return;
  MutexLock lock(&mutex_);
  MoveNow(to, from, bytes);
}

void CudaMemory::Zero(char* at, int64_t bytes) {
  if (bytes == 0) return;
  fault_.Update(StatusOf(api_, gpu_, api_.SetDevice(gpu_), "cudaSetDevice"));
  MutexLock lock(&mutex_);
  fault_.Update(StatusOf(api_, gpu_, api_.Zero(at, bytes, stream_), "cudaMemsetAsync"));
  fault_.Update(StatusOf(api_, gpu_, api_.SynchronizeStream(stream_), "cudaStreamSynchronize"));
}

}  // namespace weir::device
