// Serves the page of a run to a browser of this machine, over HTTP.
//
// The server listens on the loopback interface alone. A request must name the random token of the
// server in its path and the server itself as its host, or it gets 404; so neither other users nor
// pages of other sites can read the run. The server has the page and the run in memory and opens no
// file.
// Thread rule: the functions of ViewServer may be called from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weir::view {

class ViewServer {
 public:
  // Serves `bundle` (run_bundle.h) from now on. `port` 0: any free port. W0890: the port is taken.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(std::string bundle, int port);
  ~ViewServer();  // ends all connections
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  // Returns "http://127.0.0.1:39211/TOKEN/".
  const std::string& address() const { return address_; }

 private:
  class Connections;
  ViewServer();

  std::string address_;
  std::unique_ptr<Connections> connections_;
};

}  // namespace weir::view
