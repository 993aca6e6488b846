// Reads and checks a RankPlan message, part by part, and makes a Plan of it. Only plan.cc and
// plan_actors.cc include this header; everybody else calls PlanFromProto (actors/plan/plan.h).
// Thread rule: one reader per thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "actors/plan/plan.h"
#include "proto/plan.pb.h"
#include "runtime/base/status.h"

namespace weir::actors::plan_reader {

// Says where an error is; asked only if there is one, since there are many operands.
using Where = absl::FunctionRef<std::string()>;

// Builds one Plan; holds what is known about it so far.
class PlanReader {
 public:
  explicit PlanReader(const proto::RankPlan& proto) : proto_(proto) {}

  absl::StatusOr<Plan> Read() {
    WEIR_RETURN_IF_ERROR(ReadHeader());
    for (int i = 0; i < proto_.program_size(); ++i) WEIR_RETURN_IF_ERROR(ReadProgram(i));
    for (int i = 0; i < proto_.state_size(); ++i) WEIR_RETURN_IF_ERROR(ReadState(i));
    for (int i = 0; i < proto_.registers_size(); ++i) WEIR_RETURN_IF_ERROR(ReadRegister(i));
    for (int i = 0; i < proto_.actor_size(); ++i) WEIR_RETURN_IF_ERROR(ReadActor(i));
    for (const PlanRegister& r : plan_.registers) {
      WEIR_RETURN_IF_ERROR(CheckEnds(r));
      WEIR_RETURN_IF_ERROR(CheckStepsEnd(r));
    }
    WEIR_RETURN_IF_ERROR(CheckTokenStates());
    WEIR_RETURN_IF_ERROR(PlaceScratch());
    for (int i = 0; i < proto_.stream_order_size(); ++i)
      WEIR_RETURN_IF_ERROR(ReadStream(proto_.stream_order(i)));
    for (const PlanActor& a : plan_.actors) WEIR_RETURN_IF_ERROR(CheckOperands(a));
    return std::move(plan_);
  }

 private:
  absl::Status Bad(const char* code, const std::string& where, const std::string& expected,
                   const std::string& found) const {
    return Rejected({code,
                     absl::StrCat("plan of rank ", proto_.rank(), where.empty() ? "" : ", ", where),
                     expected, found, ""});
  }
  absl::Status Bad(const char* code, Where where, const std::string& expected,
                   const std::string& found) const {
    return Bad(code, where(), expected, found);
  }
  absl::Status Count(const char* what, int64_t found, int64_t max) const {
    if (found <= max) return absl::OkStatus();
    return Bad("W0501", "", absl::StrCat("at most ", max, " ", what), absl::StrCat(found));
  }

  absl::Status ReadHeader();
  absl::Status ReadQueues();
  absl::Status ReadSlice(const proto::TensorSliceProto& in, const char* code, Where where,
                         TensorSlice* out);
  absl::Status ReadProgram(int index);
  absl::Status PlaceScratch();
  absl::Status ReadCall(const proto::KernelCall& in, const PlanProgram& program, PlanCall* out);
  absl::Status ReadOperand(const proto::Operand& in, Where where, PlanOperand* out);
  absl::Status ReadState(int index);
  absl::Status ReadRegister(int index);
  absl::Status CheckMemory(const PlanRegister& r, const std::string& where);
  absl::Status ReadActor(int index);
  absl::Status ReadPrecedence(const proto::ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status ReadRhythm();
  absl::Status ReadRate(const proto::Rate& in, Where where, Rate* out) const;
  absl::Status ReadSpan(const proto::Span& in, const Rate& rate, const PlanRegister& r, Where where,
                        Span* out) const;
  template <typename Spec>
  absl::Status ReadTiming(const Spec& in, const Rate& rate, Where where, PlanTiming* out);
  absl::Status ReadFar(const proto::RegisterSpec& in, Where where, PlanRegister* out);
  absl::Status ReadStream(const proto::StreamOrder& in);
  absl::Status CheckStepsEnd(const PlanRegister& r) const;
  absl::Status CheckTokenStates() const;
  absl::Status ReadPorts(const proto::ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status CheckRegisterId(RegisterId id, Where where) const;
  absl::Status CheckKind(const proto::ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status CheckEnds(const PlanRegister& r) const;
  absl::Status CheckOperands(const PlanActor& actor) const;
  absl::Status CheckCollective(const PlanActor& actor, const PlanCall& call,
                               const PlanProgram& program, Where where) const;
  absl::Status CheckOperand(const PlanActor& actor, const PlanOperand& operand,
                            const PlanProgram& program, Where where) const;

  const proto::RankPlan& proto_;
  Plan plan_;
  int64_t num_precedences_ = 0;  // of actors so far
  int64_t slots_total_ = 0;
  int64_t act_times_total_ = 0;
  std::map<StateId, QueueId> queue_of_state_;
  std::vector<std::shared_ptr<const TransferNote>> notes_;
  IdVector<ActorId, bool> streamed_;  // actors that have a stream
};

inline std::string RegisterText(const PlanRegister& r) {
  return absl::StrCat("register ", r.id, " '", r.name, "'");
}
inline std::string ActorText(const PlanActor& a) {
  return absl::StrCat("actor ", a.id, " '", a.name, "'");
}

}  // namespace weir::actors::plan_reader
