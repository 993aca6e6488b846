#include "tests/golden/plan_text.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"

namespace weir::golden {
namespace {

std::string OneLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(message, &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void AppendLine(const std::string& field, const google::protobuf::Message& message,
                std::string* text) {
  absl::StrAppend(text, field, " { ", OneLine(message), " }\n");
}

}  // namespace

std::string PlanText(const proto::RankPlan& plan) {
  proto::RankPlan head = plan;
  head.clear_program();
  head.clear_actor();
  head.clear_registers();
  head.clear_state();
  head.clear_note();
  std::string text =
      absl::StrCat("# proto-file: proto/plan.proto\n# proto-message: weir.proto.RankPlan\n",
                   OneLine(head), "\n");
  for (const proto::Program& program : plan.program()) {
    proto::Program rest = program;
    rest.clear_call();
    absl::StrAppend(&text, "program {\n  ", OneLine(rest), "\n");
    for (const proto::KernelCall& call : program.call()) AppendLine("  call", call, &text);
    absl::StrAppend(&text, "}\n");
  }
  for (const proto::ActorSpec& actor : plan.actor()) AppendLine("actor", actor, &text);
  for (const proto::RegisterSpec& spec : plan.registers()) AppendLine("registers", spec, &text);
  for (const proto::StateSpec& state : plan.state()) AppendLine("state", state, &text);
  for (const proto::TransferNote& note : plan.note()) AppendLine("note", note, &text);
  return text;
}

}  // namespace weir::golden
