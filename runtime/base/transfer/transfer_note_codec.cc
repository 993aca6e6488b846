#include "runtime/base/transfer/transfer_note_codec.h"

namespace weir {

TransferNote FromProto(const proto::TransferNote& in) {
  TransferNote note;
  note.method = in.method();
  for (const proto::TransferNote::Change& change : in.change())
    note.changes.push_back({change.from(), change.to(), change.tensors()});
  note.from_stage = in.from_stage();
  note.to_stage = in.to_stage();
  for (const proto::TransferNote::Reason& reason : in.why())
    note.why.push_back({reason.kind(), reason.axis(), reason.text()});
  return note;
}

proto::TransferNote ToProto(const TransferNote& in) {
  proto::TransferNote note;
  note.set_method(in.method);
  for (const TransferNote::Change& from : in.changes) {
    proto::TransferNote::Change* to = note.add_change();
    to->set_from(from.from);
    to->set_to(from.to);
    to->set_tensors(from.tensors);
  }
  note.set_from_stage(in.from_stage);
  note.set_to_stage(in.to_stage);
  for (const TransferNote::Reason& from : in.why) {
    proto::TransferNote::Reason* to = note.add_why();
    to->set_kind(from.kind);
    to->set_axis(from.axis);
    to->set_text(from.text);
  }
  return note;
}

}  // namespace weir
