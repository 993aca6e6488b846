// Converts the vocabulary of time (runtime/base/rate.h) to messages and back. FromProto fills in
// the numbers that a message may leave out, and checks nothing: whoever reads a message from
// outside checks the value. Thread rule: pure functions.
#pragma once

#include "proto/rate.pb.h"
#include "runtime/base/rate.h"

namespace weir {

Rate FromProto(const proto::Rate& in);
Span FromProto(const proto::Span& in);
Timing FromProto(const proto::Timing& in);
Precedence FromProto(const proto::Precedence& in);

// Leave out the numbers that FromProto fills in.
proto::Rate ToProto(const Rate& in);
proto::Span ToProto(const Span& in);
proto::Timing ToProto(const Timing& in);
proto::Precedence ToProto(const Precedence& in);

}  // namespace weir
