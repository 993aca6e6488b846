#include "runtime/transport/socket_name.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir::transport {
namespace {

constexpr char kTemplate[] = "/weir-XXXXXX";
constexpr char kName[] = "/s";
constexpr size_t kStackBytes = 64 << 10;

struct Naming {
  int socket = -1;
  std::vector<std::string> folders;  // templates of mkdtemp
  int file = -1;                     // the result
  int error = ENOENT;                // why there is no file
};

// Allocates nothing, because the process that runs this function may be about to outlive all
// threads of the process that began it.
void NameAndUnname(Naming* naming) {
  for (std::string& folder : naming->folders) {
    if (::mkdtemp(folder.data()) == nullptr) {
      naming->error = errno;
      continue;
    }
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, folder.data(), folder.size());
    std::memcpy(name.sun_path + folder.size(), kName, sizeof(kName));
    if (::bind(naming->socket, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0)
      naming->file = ::open(name.sun_path, O_PATH | O_CLOEXEC);
    naming->error = errno;
    ::unlink(name.sun_path);
    ::rmdir(folder.c_str());
    if (naming->file >= 0) return;
  }
}

int RunAsSecondProcess(void* naming) {
  // Whoever ends this process ends its group, and the system ends it with its parent. This process
  // is in no such bond: a parent's death signal is not inherited.
  ::setpgid(0, 0);
  NameAndUnname(static_cast<Naming*>(naming));
  return 0;
}

// Returns whether a second process has done the work.
bool NameInSecondProcess(Naming* naming) {
#ifdef __SANITIZE_THREAD__
  // The thread sanitizer takes the second process for a fork of this one, and ends this process
  // when it starts a thread.
  return false;
#endif
  const std::unique_ptr<char[]> stack(new char[kStackBytes]);
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // The calling thread sleeps until the second process has ended (CLONE_VFORK). The end sends no
  // signal, because no signal is named.
  const int pid = ::clone(RunAsSecondProcess, stack.get() + kStackBytes,
                          CLONE_VM | CLONE_FILES | CLONE_VFORK, naming);
  if (pid > 0) {
    while (::waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid > 0;
}

}  // namespace

int BindWithoutName(int fd) {
  const char* const temporary = std::getenv("TMPDIR");
  Naming naming;
  naming.socket = fd;
  for (const char* base : {temporary == nullptr ? "/tmp" : temporary, "/tmp", "/dev/shm", "."}) {
    std::string folder = absl::StrCat(base, kTemplate);
    if (folder.size() + sizeof(kName) <= sizeof(sockaddr_un::sun_path))
      naming.folders.push_back(std::move(folder));
  }
  if (!NameInSecondProcess(&naming)) NameAndUnname(&naming);
  errno = naming.error;
  return naming.file;
}

}  // namespace weir::transport
