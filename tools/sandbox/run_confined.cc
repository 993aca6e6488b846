#include "tools/sandbox/run_confined.h"

#include <exception>
#include <system_error>
#include <thread>

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/sandbox/sandbox.h"

namespace weir::sandbox {

absl::Status RunConfined(const std::function<absl::Status()>& work) {
  absl::Status status;
  std::exception_ptr thrown;
  std::thread thread;
  try {
    thread = std::thread([&] {
      EnterSandbox({});
      try {
        status = work();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
  } catch (const std::system_error& error) {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0815", "a thread to compile the job on", "one", error.code().message(),
                    "a higher limit of processes and threads (ulimit -u)"});
  }
  thread.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return status;
}

}  // namespace weir::sandbox
