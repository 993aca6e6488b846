#include "runtime/store/mapped_file.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/store/input_file.h"

namespace weir::store {
namespace {

// --- Files that become shorter while they are mapped ---

constexpr int kExitDamaged = 66;

// A Mapping is an entry of the table in which the handler of a bus error looks up a mapping. An
// error in any other mapping names no file. `begin` is null for a free entry, and is written last,
// so that the rest is complete.
struct Mapping {
  std::atomic<const uint8_t*> begin{nullptr};
  size_t size = 0;
  char text[1024] = {};
};
std::array<Mapping, 64> mappings;
// Guards no member alone: the mutex serializes the writers of `mappings`, and the signal handler
// reads `mappings` without a lock.
Mutex mappings_mutex;
struct sigaction action_before = {};

void OnBusError(int signal, siginfo_t* info, void* context) {
  const auto* at = static_cast<const uint8_t*>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const uint8_t* begin = mapping.begin.load();
    if (begin == nullptr || at < begin || at >= begin + mapping.size) continue;
    (void)!::write(STDERR_FILENO, mapping.text, ::strlen(mapping.text));
    ::_exit(kExitDamaged);
  }
  if ((action_before.sa_flags & SA_SIGINFO) != 0)
    return action_before.sa_sigaction(signal, info, context);
  if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN)
    return action_before.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the access fails again
}

void Remember(const std::string& path, const uint8_t* data, size_t size) {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &action_before);
  });
  const std::string text =
      "weir: " +
      Format({"W0986", path, "the file to stay as it is while it is read", "that it became shorter",
              "leave the file alone, and read it again"}) +
      "\n";
  MutexLock lock(&mappings_mutex);
  for (Mapping& mapping : mappings) {
    if (mapping.begin.load() != nullptr) continue;
    mapping.size = size;
    ::strncpy(mapping.text, text.c_str(), sizeof(mapping.text) - 1);
    mapping.begin.store(data);
    return;
  }
}

void Forget(const uint8_t* data) {
  MutexLock lock(&mappings_mutex);
  for (Mapping& mapping : mappings) {
    if (mapping.begin.load() == data) mapping.begin.store(nullptr);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path,
                                                             const std::string& purpose) {
  const InputFile::Naming naming = {.expected = "a readable file (" + purpose + ")"};
  WEIR_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, naming));
  void* data = nullptr;
  if (file.size() > 0) {
    data = ::mmap(nullptr, static_cast<size_t>(file.size()), PROT_READ, MAP_PRIVATE,
                  file.descriptor(), 0);
    if (data == MAP_FAILED) {
      return Missing({naming.code, path, naming.expected,
                      absl::StrCat("a file that cannot be mapped: ", ::strerror(errno)),
                      naming.hint});
    }
  }
  if (data != nullptr)
    Remember(path, static_cast<const uint8_t*>(data), static_cast<size_t>(file.size()));
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, static_cast<const uint8_t*>(data), file.size()));
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  Forget(data_);
  ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

}  // namespace weir::store
