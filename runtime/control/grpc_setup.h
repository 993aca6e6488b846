// How the control plane uses gRPC: silent, over mTLS with the job's authority, with small
// limits and without the features that reach outside (proxies, service configs, port sharing).
// Thread rule: any thread.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/control/credentials.h"

namespace weir {

inline constexpr char kHelloKey[] = "weir-hello-bin";
// All metadata of a call together; nobody needs more for a hello.
inline constexpr int kMetadataBytesMax = 16 << 10;
// How long a stranger may take to prove who it is.
inline constexpr int kHandshakeLimitMs = 5000;

// gRPC prints nothing from here on, in this process.
void SilenceGrpc();

std::shared_ptr<grpc::ServerCredentials> CoordinatorCredentials(const Credentials& credentials);
// Sets all but what is registered and listened to. At most `memory_bytes_max` for what gRPC holds.
void LimitServer(int64_t memory_bytes_max, grpc::ServerBuilder* builder);

// To the coordinator of `job_id` at `address`; connects at the first call.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& job_id,
                                         const Credentials& credentials);

// CLOCK_MONOTONIC, in gRPC's form.
gpr_timespec MonotonicDeadline(int64_t at_ns);

// Statuses have the same codes on both sides; a message that would not fit metadata is cut.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace weir
