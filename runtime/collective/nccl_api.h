// The part of NCCL's interface that Weir uses, declared here, so that a program is built without
// NCCL's headers and started without its library. Names and values are NCCL's;
// nccl_collective_test.cc compares them with nccl.h where there is one. Thread rule: values.
#pragma once

#include <climits>
#include <cstddef>

namespace weir::collective {

struct NcclComm;    // ncclComm
struct NcclStream;  // CUstream_st

constexpr int kNcclUniqueIdBytes = 128;
struct NcclUniqueId {
  char internal[kNcclUniqueIdBytes];
};

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};
enum class NcclRedOp : int { kSum = 0, kMax = 2 };
enum class NcclDataType : int { kUint8 = 1, kInt32 = 2, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9 };

// The configuration as of NCCL 2.18. A later library reads the version, and takes its own defaults
// for what came later.
constexpr int NcclVersion(int major, int minor, int patch) {
  return major * 10000 + minor * 100 + patch;
}
constexpr int kNcclConfigVersion = NcclVersion(2, 18, 0);
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kNcclConfigVersion;
  int blocking = INT_MIN;  // INT_MIN: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unset = INT_MIN;  // bytes that a later library reads as a field
};

// The functions, by their names without "nccl". All are there in a table that NcclLibrary loads.
struct NcclFunctions {
  NcclResult (*GetVersion)(int* version) = nullptr;
  NcclResult (*GetUniqueId)(NcclUniqueId* id) = nullptr;
  NcclResult (*CommInitRankConfig)(NcclComm** comm, int size, NcclUniqueId id, int rank,
                                   NcclConfig* config) = nullptr;
  NcclResult (*CommFinalize)(NcclComm* comm) = nullptr;
  NcclResult (*CommDestroy)(NcclComm* comm) = nullptr;
  NcclResult (*CommAbort)(NcclComm* comm) = nullptr;
  NcclResult (*CommGetAsyncError)(NcclComm* comm, NcclResult* error) = nullptr;
  const char* (*GetErrorString)(NcclResult result) = nullptr;
  const char* (*GetLastError)(NcclComm* comm) = nullptr;
  NcclResult (*AllReduce)(const void* from, void* to, size_t count, NcclDataType type, NcclRedOp op,
                          NcclComm* comm, NcclStream* stream) = nullptr;
  NcclResult (*ReduceScatter)(const void* from, void* to, size_t count, NcclDataType type,
                              NcclRedOp op, NcclComm* comm, NcclStream* stream) = nullptr;
  NcclResult (*AllGather)(const void* from, void* to, size_t count, NcclDataType type,
                          NcclComm* comm, NcclStream* stream) = nullptr;
  NcclResult (*Send)(const void* from, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     NcclStream* stream) = nullptr;
  NcclResult (*Recv)(void* to, size_t count, NcclDataType type, int peer, NcclComm* comm,
                     NcclStream* stream) = nullptr;
  NcclResult (*GroupStart)() = nullptr;
  NcclResult (*GroupEnd)() = nullptr;
};

}  // namespace weir::collective
