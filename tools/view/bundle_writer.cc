#include "tools/view/bundle_writer.h"

#include <bit>
#include <utility>

#include "tools/view/run_bundle.h"

namespace weir::view {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are written as they lie");

void AppendNumber(uint32_t number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace

std::string BundleWriter::Finish(Json object) && {
  object["strings"] = std::move(strings_);
  object["columns"] = std::move(columns_);
  std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize(RoundedUp(text.size()), ' ');
  std::string bundle = "WEIRVIEW";
  AppendNumber(static_cast<uint32_t>(text.size()), &bundle);
  AppendNumber(kRunBundleVersion, &bundle);
  bundle += text;
  bundle += bytes_;
  return bundle;
}

}  // namespace weir::view
