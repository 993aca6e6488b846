#include "tools/hosts/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "tools/launch/worker_process.h"

namespace weir::hosts {
namespace {

void SetNonBlocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

PipeStream::PipeStream(launch::OwnedDescriptor input, launch::OwnedDescriptor output)
    : input_(std::move(input)), output_(std::move(output)) {
  SetNonBlocking(input_.get());
  SetNonBlocking(output_.get());
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
