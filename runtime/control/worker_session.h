// A WorkerSession is one worker's call at the coordinator: the gRPC stream with its operations
// under way, the frames that wait to be written, and the messages that have been read in part. A
// session decides nothing; the coordinator does.
//
//   awaited -> open -> closed -> (no operation under way) deleted
//           \-> refused ------/
//
// Thread rule: under the coordinator's mutex.
#pragma once

#include <cstdint>
#include <string>

#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "runtime/base/ids.h"
#include "runtime/control/grpc_setup.h"
#include "runtime/control/outbox.h"
#include "runtime/control/outcome.h"

namespace weir::control {

// Returns the frame that ends a session with this outcome.
inline proto::CoordinatorFrame EndFrame(const absl::Status& status) {
  proto::CoordinatorFrame frame;
  *frame.mutable_end()->mutable_outcome() = ToOutcome(status);
  return frame;
}

struct WorkerSession {
  enum class Operation { kAccept, kRead, kWrite, kFinish };
  // A Tag is the value that gRPC hands back when an operation is done.
  struct Tag {
    WorkerSession* session;
    Operation operation;
  };
  enum class State { kAwaited, kOpen, kClosed };

  WorkerSession(size_t messages_max, int64_t queue_bytes_max, int64_t message_bytes_max)
      : outbox(messages_max, queue_bytes_max), inbox(message_bytes_max) {}

  void StartRead();
  // Writes the next frame, or finishes the call if that is due. Does nothing if a write is under
  // way.
  void StartWrite();
  // Ends the call with `status`. Must not be called while a write is under way.
  void Finish(const grpc::Status& status);
  // Cuts the connection.
  void Cancel();

  bool has_operations() const { return accepting || reading || writing || finishing; }

  grpc::ServerContext context;
  grpc::ServerAsyncReaderWriter<proto::CoordinatorFrame, proto::WorkerFrame> stream{&context};
  Tag accepted{this, Operation::kAccept};
  Tag read{this, Operation::kRead};
  Tag written{this, Operation::kWrite};
  Tag finished{this, Operation::kFinish};

  State state = State::kAwaited;
  WorkerId worker;
  bool accepting = false;
  bool reading = false;
  bool writing = false;
  bool finishing = false;
  // True once no operation may be started any more.
  bool is_cut = false;
  // True if the call ends once the outbox is empty.
  bool ends_once_written = false;
  // True once the job was aborted; the worker answers by leaving, as soon as its command has ended.
  // The worker's end of the connection must not break before the worker has read the reason.
  bool awaits_farewell = false;

  proto::WorkerFrame incoming;
  Outbox<proto::CoordinatorFrame> outbox;
  Inbox inbox;
};

}  // namespace weir::control
