#include "tools/cli/run_viewer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/launch/program_path.h"

extern char** environ;

namespace weir::cli {
namespace {

constexpr int kStartLimitMs = 20'000;

// Starts the command with `output` as its standard output. Its group is its own, so Ctrl-C in a
// terminal asks the run alone, which shows its end. -1: it could not be started.
pid_t Start(std::vector<std::string> words, int output) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::sigaddset(&defaults, signal);
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  pid_t process = -1;
  const int error = ::posix_spawn(&process, launch::kOwnProgramLink, &files, &attributes,
                                  arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return error == 0 ? process : -1;
}

// Returns the first line, or an empty text if none comes.
std::string ReadLine(int descriptor) {
  std::string line;
  char byte;
  pollfd input = {descriptor, POLLIN, 0};
  while (::poll(&input, 1, kStartLimitMs) > 0 && ::read(descriptor, &byte, 1) == 1) {
    if (byte == '\n') return line;
    line.push_back(byte);
  }
  return "";
}

}  // namespace

std::optional<std::string> StartViewer(int64_t pid, int port) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  std::vector<std::string> words = {"weir",      "view",           "--attach", absl::StrCat(pid),
                                    "--no-open", "--ends-with-run"};
  if (port != 0) words.insert(words.end(), {"--port", absl::StrCat(port)});
  const pid_t process = Start(std::move(words), ends[1]);
  ::close(ends[1]);
  const std::string address = process < 0 ? "" : ReadLine(ends[0]);
  ::close(ends[0]);
  if (!address.empty()) return address;
  if (process > 0) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  return std::nullopt;
}

}  // namespace weir::cli
