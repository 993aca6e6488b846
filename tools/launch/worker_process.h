// A WorkerProcess is a process that this process starts and outlives. The functions below make,
// ask, kill and collect such a process. This file knows nothing of output lines or of other
// workers.
//
// The new process
//   - has descriptors 0 (a pipe to read), 1 and 2 (pipes to write; see StartOptions), 3 if it gets
//     memory, and no other descriptor of this process;
//   - is killed with SIGKILL when the thread that started it ends;
//   - leads a process group of its own: a terminal's Ctrl-C does not reach it;
//   - starts with no signal blocked or ignored;
//   - inherits the listed variables of the environment alone (worker_environment.h), unless
//     StartOptions says otherwise.
//
// Thread rule: StartProcess by a thread that lives at least as long as the process; the other
// functions by one thread at a time, except that any thread may call SendSignal while the process
// is not collected.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::launch {

struct WorkerProcess {
  int64_t pid = 0;
  OwnedDescriptor process;  // a pidfd: readable when the process has ended
  OwnedDescriptor input;    // writes to its standard input; does not block
  OwnedDescriptor output;   // reads what it prints; does not block
  OwnedDescriptor errors;   // of Streams::kApart: reads its standard error; does not block
  OwnedDescriptor memory;   // of Memory::kShared, if the system has given it
};

struct StartOptions {
  // kOne: standard output and error are one pipe, so that the order of the output is kept.
  enum class Streams : uint8_t { kOne, kApart } streams = Streams::kOne;
  // kOfWorker: the listed variables alone. kWhole: all variables, for a program of the system that
  // reaches another host.
  enum class Environment : uint8_t { kOfWorker, kWhole } environment = Environment::kOfWorker;
  // kShared: the process gets a file in memory, empty at first, that this process holds open too.
  // So what the process leaves there can be read after its end, however it ends. If the system
  // refuses the file, the process starts without one.
  enum class Memory : uint8_t { kNone, kShared } memory = Memory::kNone;
  // "NAME=value": added to the environment, or in place of the inherited value.
  std::vector<std::string> variables;
};

// `arguments[0]` is a path; PATH is not searched. Returns once the program runs. kUnavailable
// (W0093): the process cannot be made or the program cannot be executed, and nothing of it is left.
absl::StatusOr<WorkerProcess> StartProcess(const std::vector<std::string>& arguments,
                                           const StartOptions& options = {});

// Returns the descriptor of the file in memory that this process was started with, or -1.
int OwnMemory();

// While a SigpipeHeld lives, writes by its thread to a pipe or socket without a reader give EPIPE
// and never SIGPIPE. A signal that was pending before stays pending. Keeps errno.
class SigpipeHeld {
 public:
  SigpipeHeld();
  ~SigpipeHeld();
  SigpipeHeld(const SigpipeHeld&) = delete;
  SigpipeHeld& operator=(const SigpipeHeld&) = delete;

 private:
  sigset_t before_, pending_;
};

// From then on, reads and writes that would wait give EAGAIN.
void SetNonBlocking(const OwnedDescriptor& descriptor);

// Writes to a pipe or socket, as write(2) does, but never raises SIGPIPE. Any thread.
ssize_t WriteToPipe(int descriptor, const char* bytes, size_t count);

// Does nothing if the process has ended.
void SendSignal(const WorkerProcess& process, int signal);

// Sends the signal to the process and to the processes that it started in its group.
void SendToGroup(const WorkerProcess& process, int signal);

// Kills the process and the processes that it started in its group.
void KillGroup(const WorkerProcess& process);

struct EndOfProcess {
  int code = 0;
  int signal = 0;
  int64_t cpu_ms = 0;  // processor time that it has used
};
// Waits for the end of a process, kills the processes left in its group, and collects the process:
// the pid is free afterwards. Blocks while the process runs.
EndOfProcess Collect(const WorkerProcess& process);

}  // namespace weir::launch
