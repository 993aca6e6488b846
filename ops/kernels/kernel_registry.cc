#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

using Key = std::pair<std::string, std::string>;  // device, op

// Built on first use, since registrations run before main in any order.
std::map<Key, KernelFactory>& Factories() {
  static auto* factories = new std::map<Key, KernelFactory>();
  return *factories;
}

}  // namespace

void KernelRegistry::Register(const std::string& device, const std::string& op,
                              KernelFactory factory) {
  if (!Factories().emplace(Key(device, op), std::move(factory)).second) {
    std::fprintf(stderr, "two kernels are registered for op %s on device %s\n", op.c_str(),
                 device.c_str());
    std::abort();
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(const std::string& device,
                                                               const KernelSpec& spec) {
  auto it = Factories().find(Key(device, spec.op));
  if (it == Factories().end()) {
    std::string nearest = Nearest(spec.op, Names(device));
    return absl::UnimplementedError(
        absl::StrCat("no kernel for op \"", spec.op, "\" on device \"", device, "\"",
                     nearest.empty() ? "" : "; the nearest is \"" + nearest + "\""));
  }
  return it->second(spec);
}

std::vector<std::string> KernelRegistry::Names(const std::string& device) {
  std::vector<std::string> names;
  for (const auto& [key, factory] : Factories()) {
    if (key.first == device) names.push_back(key.second);
  }
  return names;
}

}  // namespace weir
