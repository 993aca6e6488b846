#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/status.h"

namespace weir::kernels {
namespace {

using Key = std::pair<std::string, std::string>;  // device, op

// The map is built on first use, since registrations run before main in any order.
std::map<Key, KernelFactory>& Factories() {
  static auto* factories = new std::map<Key, KernelFactory>();
  return *factories;
}

struct Derived {
  std::string base;
  KernelRegistry::Wrap wrap;
};

std::map<std::string, Derived>& DerivedDevices() {
  static auto* devices = new std::map<std::string, Derived>();
  return *devices;
}

}  // namespace

void KernelRegistry::Derive(const std::string& device, const std::string& base, Wrap wrap) {
  if (!DerivedDevices().emplace(device, Derived{base, wrap}).second) {
    std::fprintf(stderr, "device %s is derived twice\n", device.c_str());
    std::abort();
  }
}

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
  if (const auto derived = DerivedDevices().find(device); derived != DerivedDevices().end()) {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, Create(derived->second.base, spec));
    return derived->second.wrap(std::move(kernel), spec);
  }
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
  const auto derived = DerivedDevices().find(device);
  const std::string& own = derived == DerivedDevices().end() ? device : derived->second.base;
  std::vector<std::string> names;
  for (const auto& [key, factory] : Factories()) {
    if (key.first == own) names.push_back(key.second);
  }
  return names;
}

}  // namespace weir::kernels
