// A UcxContext sets UCX up for a process of Weir: the lanes, no signal handlers, no output.
// Messages that UCX would have printed are kept and become part of errors.
// Thread rule: construction and destruction on one thread; functions below are pure or locked.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/transport/ucx_transport.h"
#include "ucp/api/ucp.h"

namespace weir::transport {

// The most bytes that UCX reads from a TCP connection at once.
constexpr size_t kTcpSegmentBytes = 256 << 10;

class UcxContext {
 public:
  // kUnavailable if UCX has no such lanes here, with the lanes that it has.
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create(int num_workers,
                                                            const UcxTransportOptions& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }

 private:
  explicit UcxContext(ucp_context_h context) : context_(context) {}
  ucp_context_h const context_;
};

// Returns "<what>: <UCX's name of the error> (<UCX's last message on this thread>)".
absl::Status UcxError(ucs_status_t status, const std::string& what);

// Returns equal texts for processes that can share memory: same boot, same namespaces, same user.
std::string HostIdentity();

}  // namespace weir::transport
