#include "runtime/base/rate_codec.h"

namespace weir {
namespace {

// A count of 1 is 0 in a message, so that a message of the usual counts is empty.
int64_t OneIfAbsent(int64_t count) { return count == 0 ? 1 : count; }
int64_t AbsentIfOne(int64_t count) { return count == 1 ? 0 : count; }

}  // namespace

Rate FromProto(const proto::Rate& in) {
  return {in.acts_per_step(), OneIfAbsent(in.chunks()), OneIfAbsent(in.every()), in.every_phase()};
}

Span FromProto(const proto::Span& in) {
  return {OneIfAbsent(in.period()), OneIfAbsent(in.tokens()), in.phase()};
}

Timing FromProto(const proto::Timing& in) {
  return {in.start_ns(), in.micro_batch_stride_ns(), in.chunk_stride_ns(), in.time_ns()};
}

Precedence FromProto(const proto::Precedence& in) {
  return {in.first(), OneIfAbsent(in.group()), in.group_stride(), in.stride()};
}

proto::Rate ToProto(const Rate& in) {
  proto::Rate out;
  out.set_acts_per_step(in.acts_per_step);
  out.set_chunks(AbsentIfOne(in.chunks));
  out.set_every(AbsentIfOne(in.every));
  out.set_every_phase(in.every_phase);
  return out;
}

proto::Span ToProto(const Span& in) {
  proto::Span out;
  out.set_period(AbsentIfOne(in.period));
  out.set_tokens(AbsentIfOne(in.tokens));
  out.set_phase(in.phase);
  return out;
}

proto::Timing ToProto(const Timing& in) {
  proto::Timing out;
  out.set_start_ns(in.start_ns);
  out.set_micro_batch_stride_ns(in.micro_batch_stride_ns);
  out.set_chunk_stride_ns(in.chunk_stride_ns);
  out.set_time_ns(in.time_ns);
  return out;
}

proto::Precedence ToProto(const Precedence& in) {
  proto::Precedence out;
  out.set_first(in.first);
  out.set_group(AbsentIfOne(in.group));
  out.set_group_stride(in.group_stride);
  out.set_stride(in.stride);
  return out;
}

}  // namespace weir
