// A worker process for tests: `test_worker VERB [ARGUMENT]`. Each verb is one behaviour.
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>

namespace {

void Print(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) ::_exit(3);
    done += static_cast<size_t>(written);
  }
}

[[noreturn]] void Pause() {
  while (true) ::pause();
}

int PrintLines(int count) {
  for (int i = 0; i < count; ++i) Print("line " + std::to_string(i) + "\n");
  return 0;
}

int PrintBytes(int count) {
  const std::string line(99, 'x');
  for (int i = 0; i < count / 100; ++i) Print(line + "\n");
  Print("end\n");
  return 0;
}

// Prints every possible byte, alternately on stdout and stderr.
int PrintAllBytes(int) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  Print(bytes);
  Print("\nout 1\n");
  ::dprintf(STDERR_FILENO, "error 1\n");
  Print("out 2\n");
  return 0;
}

int PrintWithoutNewline(int) {
  Print("first\nno newline");
  return 0;
}

// Prints one line of `count` bytes, without an end.
int PrintLongLine(int count) {
  Print(std::string(static_cast<size_t>(count), 'y'));
  return 0;
}

// Writes to the memory that its parent holds too, and is killed.
int LeaveMemory(int) {
  const char text[] = {'l', 'e', 'f', 't', ' ', 'h', 'e', 'r', 'e'};
  if (::write(3, text, sizeof(text)) != sizeof(text)) return 3;
  return ::raise(SIGKILL);
}

// Prints its open descriptors, its parent's death signal, its process group, and its blocked or
// ignored signals.
int Describe(int) {
  std::string text = "descriptors";
  DIR* directory = ::opendir("/proc/self/fd");
  const int own = ::dirfd(directory);
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.' && ::atoi(entry->d_name) != own)
      text += std::string(" ") + entry->d_name;
  }
  ::closedir(directory);
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  text += "\ndeath signal " + std::to_string(death_signal);
  text += ::getpgid(0) == ::getpid() ? "\nown group" : "\nforeign group";
  FILE* status = ::fopen("/proc/self/status", "r");
  char line[256];
  while (::fgets(line, sizeof(line), status) != nullptr) {
    if (::strncmp(line, "SigBlk:", 7) != 0 && ::strncmp(line, "SigIgn:", 7) != 0) continue;
    // Signals 32 and 33 belong to the C library and are out of reach.
    const uint64_t signals = std::strtoull(line + 7, nullptr, 16) & ~(uint64_t{3} << 31);
    text += "\n" + std::string(line, 7) + " " + std::to_string(signals);
  }
  ::fclose(status);
  Print(text + "\n");
  return 0;
}

// Prints its standard input, and then the number of bytes.
int Echo(int) {
  std::string told;
  char bytes[4096];
  ssize_t count;
  while ((count = ::read(STDIN_FILENO, bytes, sizeof(bytes))) > 0)
    told.append(bytes, static_cast<size_t>(count));
  Print((told.size() < 100 ? told + "\n" : "") + std::to_string(told.size()) + " bytes\n");
  return 0;
}

int Exit(int code) { return code; }

// Dies of a signal. No core file is made, because the death is intended.
int Die(int signal) {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);
  Print("dying\n");
  ::raise(signal);
  return 4;
}

int Wait(int) {
  Print("ready\n");
  Pause();
}

int IgnoreTerminate(int) {
  ::signal(SIGTERM, SIG_IGN);
  return Wait(0);
}

void OnTerminate(int) {
  static const char kText[] = "asked to end\n";
  if (::write(STDOUT_FILENO, kText, sizeof(kText) - 1) < 0) ::_exit(3);
  ::_exit(7);
}

int EndPolitely(int) {
  ::signal(SIGTERM, OnTerminate);
  return Wait(0);
}

int StopItself(int) {
  ::signal(SIGTERM, OnTerminate);
  Print("ready\n");
  ::raise(SIGSTOP);
  Pause();
}

int Chatter(int) {
  for (int i = 0;; ++i) Print("chatter " + std::to_string(i) + "\n");
}

int CloseOutput(int) {
  ::close(STDOUT_FILENO);
  ::close(STDERR_FILENO);
  Pause();
}

// Leaves a process behind that holds the pipe and keeps writing: 0 in its own group, 1 in its own
// session.
int LeaveBehind(int session) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (session == 1) {
      ::setsid();
      ::signal(SIGPIPE, SIG_DFL);
      while (true) Print("left behind\n");
    }
    Pause();
  }
  Print("left " + std::to_string(pid) + "\n");
  return 5;
}

// Prints the variables that a test may have set.
int PrintVariables(int) {
  for (const char* name : {"UCX_OF_TEST", "OMP_OF_TEST", "NEW_OF_TEST", "NOT_LISTED_OF_TEST"}) {
    const char* const value = ::getenv(name);
    Print(std::string(name) + "=" + (value == nullptr ? "(none)" : value) + "\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(int)> verbs = {{"lines", PrintLines},
                                                     {"bytes", PrintBytes},
                                                     {"all-bytes", PrintAllBytes},
                                                     {"no-newline", PrintWithoutNewline},
                                                     {"long-line", PrintLongLine},
                                                     {"describe", Describe},
                                                     {"echo", Echo},
                                                     {"exit", Exit},
                                                     {"die", Die},
                                                     {"wait", Wait},
                                                     {"ignore-terminate", IgnoreTerminate},
                                                     {"end-politely", EndPolitely},
                                                     {"stop-itself", StopItself},
                                                     {"chatter", Chatter},
                                                     {"close-output", CloseOutput},
                                                     {"leave-behind", LeaveBehind},
                                                     {"leave-memory", LeaveMemory},
                                                     {"variables", PrintVariables}};
  if (argc < 2) return 64;
  const auto verb = verbs.find(argv[1]);
  if (verb == verbs.end()) return 64;
  return verb->second(argc > 2 ? ::atoi(argv[2]) : 0);
}
