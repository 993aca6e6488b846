#include "runtime/transport/ucx_context.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/problem.h"
#include "runtime/limits/process_limits.h"
#include "ucm/api/ucm.h"
#include "ucs/config/global_opts.h"
#include "ucs/debug/debug.h"
#include "ucs/debug/log_def.h"

namespace weir::transport {
namespace {

constexpr size_t kTextMax = 256;
thread_local char last_text[kTextMax] = "";

// UCX's log goes here instead of the console, unless UCX_LOG_LEVEL requests the console.
ucs_log_func_rc_t KeepText(const char*, unsigned, const char*, ucs_log_level_t level,
                           const ucs_log_component_config_t*, const char* format,
                           va_list arguments) {
  if (level <= UCS_LOG_LEVEL_WARN) {
    va_list copy;
    va_copy(copy, arguments);
    std::vsnprintf(last_text, sizeof(last_text), format, copy);
    va_end(copy);
  }
  return std::getenv("UCX_LOG_LEVEL") != nullptr ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

// Sets options of the whole process. UCX's library takes over error signals when it is loaded; this
// function gives them back to their owners, earlier or later ones.
void TameOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    ucs_log_push_handler(&KeepText);
    ucs_global_opts.handle_errors = 0;
    ucs_global_opts.warn_unused_env_vars = 0;
    for (unsigned i = 0; i < ucs_global_opts.error_signals.count; ++i) {
      ucs_debug_disable_signal(ucs_global_opts.error_signals.signals[i]);
    }
    // No part of Weir caches registrations, so UCX need not watch munmap.
    ucm_global_opts.enable_events = 0;
    ucm_global_opts.enable_malloc_hooks = 0;
    ucm_global_opts.enable_malloc_reloc = 0;
  });
}

// Returns the transports to request from UCX.
const char* Transports(UcxTransportOptions::Lanes lanes) {
  switch (lanes) {
    case UcxTransportOptions::Lanes::kAutomatic: return "posix,cma,tcp";
    case UcxTransportOptions::Lanes::kSharedMemory: return "posix,cma";
    case UcxTransportOptions::Lanes::kTcp: return "tcp";
  }
  return "";
}

std::string ReadLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ReadLink(const char* path) {
  char target[128];
  const ssize_t size = ::readlink(path, target, sizeof(target));
  return size < 0 ? std::string("?") : std::string(target, static_cast<size_t>(size));
}

ucs_status_t Init(const char* transports, int num_workers, const UcxTransportOptions& options,
                  ucp_context_h* context) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  const std::string segment = absl::StrCat(kTcpSegmentBytes);
  const std::pair<const char*, const char*> settings[] = {
      {"TLS", transports},
      {"NET_DEVICES", options.interface.c_str()},
      // A second rail for large messages would be a lane of the other kind.
      {"MAX_RNDV_RAILS", "1"},
      // The heartbeats of the control plane tell which ranks are gone, so nothing wakes sleeping
      // ranks for it.
      {"KEEPALIVE_INTERVAL", "inf"},
  };
  for (const auto& [name, value] : settings) {
    if (status == UCS_OK) status = ucp_config_modify(config, name, value);
  }
  // UCX ignores names of transports' settings that it does not know. Up to 1.13 it knows these
  // without the name of the transport, and later with it.
  const std::pair<const char*, const char*> settings_of_tcp[] = {
      {"RX_SEG_SIZE", segment.c_str()},
      {"MAX_NUM_EPS", "inf"},
      // Likewise: a network that is away for a while, and back before a rank counts as gone, breaks
      // no idle connection.
      {"KEEPIDLE", "inf"},
  };
  for (const auto& [name, value] : settings_of_tcp) {
    for (const std::string& known : {std::string(name), absl::StrCat("TCP_", name)}) {
      if (status == UCS_OK) status = ucp_config_modify(config, known.c_str(), value);
    }
  }
  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (options.lanes != UcxTransportOptions::Lanes::kTcp) params.features |= UCP_FEATURE_RMA;
  params.mt_workers_shared = num_workers > 1 ? 1 : 0;
  params.name = "weir";
  if (status == UCS_OK) status = ucp_init(&params, config, context);
  ucp_config_release(config);
  return status;
}

// UCX makes its segments under a name, fills them, and takes the name away; peers open them through
// /proc. A process that is killed in between would leave the segments behind.
bool IsSegmentOfUcx(const char* name) {
  constexpr absl::string_view kPrefix = "/ucx_shm_posix_";
  return absl::StartsWith(name, kPrefix);
}

}  // namespace
}  // namespace weir::transport

// This function keeps such segments from ever getting a name: libuct finds this function before the
// C library's. Other names go to the C library.
extern "C" int shm_open(const char* name, int flags, mode_t mode) {
  if (weir::transport::IsSegmentOfUcx(name) && (flags & O_CREAT) != 0)
    return ::memfd_create(name + 1, MFD_CLOEXEC);
  static const auto next =
      reinterpret_cast<int (*)(const char*, int, mode_t)>(::dlsym(RTLD_NEXT, "shm_open"));
  return next(name, flags, mode);
}
extern "C" int shm_unlink(const char* name) {
  if (weir::transport::IsSegmentOfUcx(name)) return 0;
  static const auto next = reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_NEXT, "shm_unlink"));
  return next(name);
}

// This function keeps UCX's library from making System V segments. Such a segment has an id before
// UCX can remove the segment, so a process that is killed in between would leave the segment
// behind. UCX makes one as its library is loaded (a test of hooks that Weir turns off), and asks
// for one with huge pages for its buffers. UCX goes on without either.
extern "C" int shmget(key_t, size_t, int) {
  errno = ENOSYS;
  return -1;
}

namespace weir::transport {

absl::Status UcxError(ucs_status_t status, const std::string& what) {
  Problem problem{.code = "W0525", .where = "UCX"};
  problem.found = absl::StrCat(what, ": ", ucs_status_string(status));
  if (last_text[0] != '\0') absl::StrAppend(&problem.found, " (", last_text, ")");
  last_text[0] = '\0';
  // UCX meets this limit and does not name it, and few users suspect it: the limit of file size
  // counts for shared memory, too.
  if (const std::string limit = limits::LimitText(RLIMIT_FSIZE); !limit.empty()) {
    problem.hint = absl::StrCat(
        "raise the limit of file size, which counts for shared memory, too (", limit, ")");
  }
  return ErrorOf(absl::StatusCode::kUnavailable, problem);
}

std::string HostIdentity() {
  return absl::StrCat(ReadLine("/proc/sys/kernel/random/boot_id"), " ",
                      ReadLink("/proc/self/ns/ipc"), " ", ReadLink("/proc/self/ns/pid"), " ",
                      ::geteuid());
}

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(int num_workers,
                                                               const UcxTransportOptions& options) {
  TameOnce();
  const char* transports = Transports(options.lanes);
  last_text[0] = '\0';
  ucp_context_h context = nullptr;
  const ucs_status_t made = Init(transports, num_workers, options, &context);
  if (made == UCS_OK) return std::unique_ptr<UcxContext>(new UcxContext(context));
  return UcxError(
      made, absl::StrCat("UCX ", ucp_get_version_string(), " offers no lanes '", transports, "'"));
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

}  // namespace weir::transport
