#include "runtime/control/worker_session.h"

namespace weir::control {

void WorkerSession::StartRead() {
  if (is_cut || reading) return;
  reading = true;
  stream.Read(&incoming, &read);
}

void WorkerSession::StartWrite() {
  if (is_cut || writing || finishing) return;
  if (auto frame = outbox.Next(); frame.has_value()) {
    writing = true;
    stream.Write(*frame, &written);
  } else if (ends_once_written && outbox.empty()) {
    Finish(grpc::Status::OK);
  }
}

void WorkerSession::Finish(const grpc::Status& status) {
  if (is_cut || writing || finishing) return;
  finishing = true;
  stream.Finish(status, &finished);
}

void WorkerSession::Cancel() {
  if (is_cut) return;
  is_cut = true;
  context.TryCancel();
}

}  // namespace weir::control
