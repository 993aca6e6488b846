#include "tools/hosts/host_files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "tools/launch/log_directory.h"

namespace weir::hosts {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

absl::Status WriteAll(int descriptor, const std::string& bytes) {
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t count = ::write(descriptor, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(absl::StrCat("write failed: ", ::strerror(errno)));
    written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

FetchedFile::FetchedFile(const proto::FetchOrder& order)
    : request_(order.request()), status_(Open(order)) {}

FetchedFile::FetchedFile(int64_t request, absl::StatusOr<std::string> bytes)
    : request_(request), status_(bytes.status()) {
  if (bytes.ok()) content_ = std::make_unique<std::istringstream>(*std::move(bytes));
}

absl::Status FetchedFile::Open(const proto::FetchOrder& order) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(order.path(), error))
    return absl::NotFoundError(absl::StrCat("no file ", order.path()));
  const uintmax_t size = std::filesystem::file_size(order.path(), error);
  if (error) return absl::NotFoundError(absl::StrCat(order.path(), ": ", error.message()));
  if (size > static_cast<uintmax_t>(std::max<int64_t>(order.bytes_max(), 0))) {
    return absl::ResourceExhaustedError(absl::StrCat(
        order.path(), " has ", size, " bytes, more than the ", order.bytes_max(), " wanted"));
  }
  content_ = std::make_unique<std::ifstream>(order.path(), std::ios::binary);
  return *content_ ? absl::OkStatus()
                   : absl::NotFoundError(absl::StrCat("cannot open ", order.path()));
}

std::optional<proto::FetchReport> FetchedFile::Next() {
  if (has_ended_) return std::nullopt;
  proto::FetchReport report;
  report.set_request(request_);
  std::string bytes;
  if (status_.ok()) {
    bytes.resize(kPieceBytes);
    content_->read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(std::max<std::streamsize>(content_->gcount(), 0)));
    if (content_->bad()) status_ = absl::DataLossError("the file cannot be read to its end");
  }
  if (bytes.empty() || !status_.ok()) {
    has_ended_ = true;
    report.set_is_last(true);
    *report.mutable_outcome() = control::ToOutcome(status_);
  } else {
    report.set_bytes(std::move(bytes));
  }
  return report;
}

std::optional<proto::ShipReport> ShippedFile::Take(const proto::ShipOrder& piece) {
  if (piece.request() == request_ && has_ended_) return std::nullopt;
  const absl::Status status = Write(piece);
  has_ended_ = piece.is_last() || !status.ok();
  if (!has_ended_) return std::nullopt;
  file_.reset();
  proto::ShipReport report;
  report.set_request(piece.request());
  *report.mutable_outcome() = control::ToOutcome(status);
  return report;
}

absl::Status ShippedFile::Write(const proto::ShipOrder& piece) {
  const std::string& path = piece.path();
  const auto cannot = [&path](int error) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", ::strerror(error)));
  };
  if (piece.offset() == 0) {
    request_ = piece.request();
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) WEIR_RETURN_IF_ERROR(launch::MakeDirectories(folder.string()));
    file_ = std::make_unique<store::PendingFile>();
    if (const int error = file_->Create(path); error != 0) return cannot(error);
  }
  if (file_ == nullptr || piece.request() != request_)
    return absl::InternalError("a piece of a file that has not begun");
  WEIR_RETURN_IF_ERROR(WriteAll(file_->descriptor(), piece.bytes()));
  if (!piece.is_last()) return absl::OkStatus();
  if (const int error = file_->Publish(); error != 0) return cannot(error);
  return absl::OkStatus();
}

}  // namespace weir::hosts
