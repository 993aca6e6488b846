#include "runtime/control/grpc_setup.h"

#include <grpc/grpc_security_constants.h>
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/control/greeting_time.h"
#include "runtime/control/outbox.h"
#include "runtime/control/outcome.h"

namespace weir::control {
namespace {

// The limit of gRPC's memory, in all and more for each worker: a frame each way, and the bytes
// between. If a worker announces a huge frame, which a worker of Weir never does, gRPC ends streams
// once this memory is used up: the job ends, and the starter lives.
constexpr int64_t kGrpcBytes = 32 << 20;
constexpr int64_t kGrpcBytesPerWorker = 1 << 20;
// The time that an unknown connection may take to prove its identity when no others do.
constexpr int kHandshakeLimitMs = 5000;
// The time after which a connection without a call is closed.
constexpr int kIdleConnectionMs = 10'000;
// The time after which gRPC gives up an attempt to connect. The greetings of thousands of workers
// take longer than gRPC's own limit of 20 s, and whoever connects has a limit of its own.
constexpr int kAttemptLimitMs = 3'600'000;
constexpr size_t kStatusBytesMax = 3 << 10;

void PrintNothing(gpr_log_func_args*) {}

// Returns "ipv4:127.0.0.1:80": numbers need no resolver.
std::string TargetOf(const std::string& address) {
  if (absl::StartsWith(address, "[")) return absl::StrCat("ipv6:", address);
  return address.find_first_not_of("0123456789.:") == std::string::npos
             ? absl::StrCat("ipv4:", address)
             : absl::StrCat("dns:///", address);
}

}  // namespace

void PrepareGrpc() {
  gpr_set_log_function(PrintNothing);
  gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

std::shared_ptr<grpc::ServerCredentials> CoordinatorCredentials(const Credentials& credentials) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.authority_pem;
  options.pem_key_cert_pairs.push_back({credentials.key_pem, credentials.certificate_pem});
  return grpc::SslServerCredentials(options);
}

void LimitServer(int num_workers, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(kGrpcBytes + num_workers * kGrpcBytesPerWorker));
  quota.SetMaxThreads(1);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(kFrameBytesMax);
  builder->SetMaxSendMessageSize(kFrameBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kHandshakeLimitMs + static_cast<int>(GreetingMs(num_workers)));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              kIdleConnectionMs + static_cast<int>(GreetingMs(num_workers)));
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& job_id,
                                         const Credentials& credentials) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = credentials.authority_pem;
  options.pem_private_key = credentials.key_pem;
  options.pem_cert_chain = credentials.certificate_pem;
  grpc::ChannelArguments arguments;
  // The certificate names the coordinator of this job, on whichever host it runs.
  arguments.SetSslTargetNameOverride(CoordinatorIdentity(job_id));
  arguments.SetMaxReceiveMessageSize(kFrameBytesMax);
  arguments.SetMaxSendMessageSize(kFrameBytesMax);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kAttemptLimitMs);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(TargetOf(address), grpc::SslCredentials(options), arguments);
}

gpr_timespec MonotonicDeadline(int64_t at_ns) {
  gpr_timespec deadline;
  deadline.clock_type = GPR_CLOCK_MONOTONIC;
  deadline.tv_sec = at_ns / 1'000'000'000;
  deadline.tv_nsec = static_cast<int32_t>(at_ns % 1'000'000'000);
  return deadline;
}

grpc::Status ToGrpc(const absl::Status& status) {
  const std::string outcome = ToOutcome(status).SerializeAsString();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kStatusBytesMax)),
                      outcome.size() <= kStatusBytesMax ? outcome : "");
}

absl::Status FromGrpc(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  proto::Outcome outcome;
  if (outcome.ParseFromString(status.error_details()) && outcome.has_problem())
    return WithCode(code, FromOutcome(outcome));
  return absl::Status(code, status.error_message());
}

}  // namespace weir::control
