// Reads any bytes as the plan of a rank, as protobuf text or binary: loads and checks it, or
// refuses it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "actors/plan/plan.h"
#include "actors/plan/verify_plans.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/status.h"

namespace {

class NoErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

void ExpectRefusal(const absl::Status& status) {
  if (status.ok() || weir::ExitCode(status) == 65) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::proto::RankPlan proto;
  NoErrors no_errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&no_errors);
  parser.SetRecursionLimit(32);
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (!parser.ParseFromString(text, &proto) && !proto.ParseFromArray(data, static_cast<int>(size)))
    return 0;
  absl::StatusOr<weir::actors::Plan> plan = weir::actors::PlanFromProto(proto);
  ExpectRefusal(plan.status());
  if (plan.ok()) ExpectRefusal(weir::actors::VerifyPlans({&*plan, 1}));
  return 0;
}
