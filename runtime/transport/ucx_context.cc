#include "runtime/transport/ucx_context.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ucm/api/ucm.h"
#include "ucs/config/global_opts.h"
#include "ucs/debug/debug.h"
#include "ucs/debug/log_def.h"

namespace weir {
namespace {

constexpr size_t kTextMax = 256;
thread_local char last_text[kTextMax] = "";

// UCX's log goes here instead of the console, unless UCX_LOG_LEVEL asks for it.
ucs_log_func_rc_t KeepText(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t*,
                           const char* format, va_list arguments) {
  if (level <= UCS_LOG_LEVEL_WARN) {
    va_list copy;
    va_copy(copy, arguments);
    std::vsnprintf(last_text, sizeof(last_text), format, copy);
    va_end(copy);
  }
  return std::getenv("UCX_LOG_LEVEL") != nullptr ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

// What concerns the whole process. UCX's library takes over error signals when it is loaded;
// they go back to whoever had or has asked for them since.
void TameOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    ucs_log_push_handler(&KeepText);
    ucs_global_opts.handle_errors = 0;
    ucs_global_opts.warn_unused_env_vars = 0;
    for (unsigned i = 0; i < ucs_global_opts.error_signals.count; ++i) {
      ucs_debug_disable_signal(ucs_global_opts.error_signals.signals[i]);
    }
    // Nothing here caches registrations, so nobody needs to know of every munmap.
    ucm_global_opts.enable_events = 0;
    ucm_global_opts.enable_malloc_hooks = 0;
    ucm_global_opts.enable_malloc_reloc = 0;
  });
}

const char* Transports(UcxTransportOptions::Lanes lanes) {
  switch (lanes) {
    case UcxTransportOptions::Lanes::kAutomatic:
      return "sysv,cma,tcp";
    case UcxTransportOptions::Lanes::kSharedMemory:
      return "sysv,cma";
    case UcxTransportOptions::Lanes::kTcp:
      return "tcp";
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

std::vector<int> OpenDescriptors() {
  std::vector<int> fds;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return fds;
  while (const dirent* entry = ::readdir(folder)) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->d_name, &fd) && fd != ::dirfd(folder)) fds.push_back(fd);
  }
  ::closedir(folder);
  std::sort(fds.begin(), fds.end());
  return fds;
}

// The port of a listening TCP socket as it stands in memory (network order), or 0.
uint16_t ListeningPort(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return 0;
  sockaddr_storage address{};
  size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
  if (address.ss_family == AF_INET6) return reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port;
  return 0;
}

}  // namespace

absl::Status UcxError(ucs_status_t status, const std::string& what) {
  std::string text = absl::StrCat("W0525 ", what, ": ", ucs_status_string(status));
  if (last_text[0] != '\0') absl::StrAppend(&text, " (", last_text, ")");
  last_text[0] = '\0';
  return absl::UnavailableError(text);
}

std::string HostIdentity() {
  return absl::StrCat(ReadLine("/proc/sys/kernel/random/boot_id"), " ", ReadLink("/proc/self/ns/ipc"), " ",
                      ReadLink("/proc/self/ns/pid"), " ", ::geteuid());
}

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(int num_workers, const UcxTransportOptions& options) {
  TameOnce();
  last_text[0] = '\0';
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError(status, "UCX cannot read its configuration");
  const std::pair<const char*, const char*> settings[] = {
      {"TLS", Transports(options.lanes)},
      {"NET_DEVICES", options.loopback_only ? "lo" : "all"},
      // A second rail for large messages would be a lane of the other kind.
      {"MAX_RNDV_RAILS", "1"},
      // Idle connections are looked after by the kernel, so that UCX does not wake sleeping ranks.
      {"KEEPALIVE_INTERVAL", "inf"},
      {"TCP_KEEPIDLE", "1s"},
      {"TCP_KEEPINTVL", "1s"},
      {"TCP_KEEPCNT", "3"},
      {"TCP_MAX_NUM_EPS", "inf"},
  };
  for (const auto& [name, value] : settings) {
    if (status == UCS_OK) status = ucp_config_modify(config, name, value);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (options.lanes != UcxTransportOptions::Lanes::kTcp) params.features |= UCP_FEATURE_RMA;
  params.mt_workers_shared = num_workers > 1 ? 1 : 0;
  params.name = "weir";
  ucp_context_h context = nullptr;
  if (status == UCS_OK) status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return UcxError(status, absl::StrCat("UCX ", ucp_get_version_string(), " offers no lanes '", Transports(options.lanes), "'"));
  }
  return std::unique_ptr<UcxContext>(new UcxContext(context));
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

UcxListeners::UcxListeners() : before_(OpenDescriptors()) {}

void UcxListeners::Find(const std::string& address) {
  for (int fd : OpenDescriptors()) {
    if (std::binary_search(before_.begin(), before_.end(), fd)) continue;
    const uint16_t port = ListeningPort(fd);
    if (port == 0) continue;
    const std::string text(reinterpret_cast<const char*>(&port), sizeof(port));
    if (address.find(text) != std::string::npos) found_.push_back(fd);
  }
}

void UcxListeners::Retire() {
  for (int fd : found_) {
    const int inert = ::eventfd(0, EFD_CLOEXEC);
    if (inert < 0) continue;
    ::dup3(inert, fd, O_CLOEXEC);
    ::close(inert);
  }
  found_.clear();
}

}  // namespace weir
