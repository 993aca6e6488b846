// A ByteStream carries bytes both ways between the starter of a job and the agent of a host, and
// never blocks: a pair of pipes (PipeStream), or a connection that both sides have proved
// (sealed_stream.h). Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {

class ByteStream {
 public:
  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // As read(2) and write(2) on a descriptor that does not block: -1 with errno EAGAIN if nothing
  // can be done now. Read returns 0 at the end. A reader that is gone gives an error and never
  // SIGPIPE.
  virtual ssize_t Read(char* bytes, size_t count) = 0;
  virtual ssize_t Write(const char* bytes, size_t count) = 0;
  // Returns whether Read has bytes although poll may show none.
  virtual bool has_pending() const { return false; }
  // Returns whether the machine at the other end has not answered for so long that it counts as
  // gone. Pipes do not know.
  virtual bool is_silent() const { return false; }

  // The descriptors, for poll; -1 once closed, and for a stream without descriptors of its own.
  virtual int input() const = 0;
  virtual int output() const = 0;
  // Return whether the side is not closed here.
  virtual bool is_input_open() const { return input() >= 0; }
  virtual bool is_output_open() const { return output() >= 0; }
  // The other side reads the end then.
  virtual void CloseOutput() = 0;
  virtual void Close() = 0;  // both
};

class PipeStream final : public ByteStream {
 public:
  PipeStream(launch::OwnedDescriptor input, launch::OwnedDescriptor output);

  ssize_t Read(char* bytes, size_t count) override;
  ssize_t Write(const char* bytes, size_t count) override;
  int input() const override { return input_.get(); }
  int output() const override { return output_.get(); }
  void CloseOutput() override { output_.Close(); }
  void Close() override;

 private:
  launch::OwnedDescriptor input_, output_;
};

}  // namespace weir::hosts
