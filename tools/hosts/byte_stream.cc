#include "tools/hosts/byte_stream.h"

#include <unistd.h>

#include <utility>

#include "tools/launch/worker_process.h"

namespace weir::hosts {

PipeStream::PipeStream(launch::OwnedDescriptor input, launch::OwnedDescriptor output)
    : input_(std::move(input)), output_(std::move(output)) {
  launch::SetNonBlocking(input_);
  launch::SetNonBlocking(output_);
}

ssize_t PipeStream::Read(char* bytes, size_t count) { return ::read(input_.get(), bytes, count); }

ssize_t PipeStream::Write(const char* bytes, size_t count) {
  return launch::WriteToPipe(output_.get(), bytes, count);
}

void PipeStream::Close() {
  input_.Close();
  output_.Close();
}

}  // namespace weir::hosts
