#include "ops/defs/at_positions.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace weir::ops {
namespace {

std::map<std::string, AtPositions>& Entries() {
  static auto* entries = new std::map<std::string, AtPositions>();
  return *entries;
}

}  // namespace

const AtPositions* FindAtPositions(const std::string& op) {
  const auto found = Entries().find(op);
  return found == Entries().end() ? nullptr : &found->second;
}

std::vector<std::string> OpsThatRunAs(const std::string& op) {
  std::vector<std::string> ops;
  for (const auto& [name, entry] : Entries()) {
    if (entry.op == op && name != op) ops.push_back(name);
  }
  return ops;
}

bool KeepsOutputs(const std::string& op) {
  for (const auto& [name, entry] : Entries()) {
    if (entry.keeps && entry.op == op) return true;
  }
  return false;
}

bool RegisterAtPositions(const std::string& op, AtPositions entry) {
  if (Entries().emplace(op, std::move(entry)).second) return true;
  std::fprintf(stderr, "op %s says twice how it runs at positions\n", op.c_str());
  std::abort();
}

}  // namespace weir::ops
