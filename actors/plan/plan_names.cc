// Words for kinds, phases and sides in messages and traces.
#include "actors/plan/plan.h"

namespace weir::actors {

const char* Name(ActorKind kind) {
  switch (kind) {
    case ActorKind::kCompute: return "COMPUTE";
    case ActorKind::kSource: return "SOURCE";
    case ActorKind::kSink: return "SINK";
    case ActorKind::kSend: return "SEND";
    case ActorKind::kCollective: return "COLLECTIVE";
  }
  return "?";
}

const char* Name(ActorPhase phase) {
  switch (phase) {
    case ActorPhase::kNone: return "other";
    case ActorPhase::kForward: return "forward";
    case ActorPhase::kBackward: return "backward";
    case ActorPhase::kUpdate: return "update";
    case ActorPhase::kBoxing: return "boxing";
    case ActorPhase::kData: return "data";
    case ActorPhase::kMetric: return "metric";
    case ActorPhase::kWeightGradient: return "weight gradient";
  }
  return "?";
}

const char* Name(RegisterSide side) {
  switch (side) {
    case RegisterSide::kLocal: return "local";
    case RegisterSide::kInbound: return "inbound";
    case RegisterSide::kOutbound: return "outbound";
  }
  return "?";
}

}  // namespace weir::actors
