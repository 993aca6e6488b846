// Serves the page of a run to a browser of this machine, over HTTP: of a recorded run, or of a run
// that goes on.
//
// TOKEN/         the page
// TOKEN/run      the bundle of a recorded run (run_bundle.h), as soon as it is known; 503 if it
//                never is
// TOKEN/progress what the analysis of that run does (GrowingRun::ProgressJson)
// TOKEN/analysis the bundle of the analysis; 503 until it is there
// TOKEN/live     the state of a run that goes on, and its history from byte `from` on: {"state":
//                the object of tools/live/live_run.h, "is_alive", "history": lines, "next": the
//                byte after them}
// TOKEN/metrics  the same state for Prometheus
//
// The server listens on the loopback interface alone. A request must name the random token of the
// server in its path and the server itself as its host, or it gets 404; so neither other users nor
// pages of other sites can read the run. The server has the page and the run, or the record of the
// run, open, and opens no file.
// Thread rule: the functions of ViewServer may be called from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/live/live_reader.h"
#include "tools/view/growing_run.h"

namespace weir::view {

class ViewServer {
 public:
  // Serves `bundle` (run_bundle.h) from now on. `port` 0: any free port. W0890: the port is taken.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(std::string bundle, int port);
  // Serves a run that somebody reads and analyses meanwhile.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(std::shared_ptr<const GrowingRun> run,
                                                           int port);
  // Serves the run that keeps the record, also after the run has ended.
  static absl::StatusOr<std::unique_ptr<ViewServer>> StartLive(
      std::shared_ptr<const live::LiveReader> reader, int port);
  ~ViewServer();  // ends all connections
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  // Returns "http://127.0.0.1:39211/TOKEN/".
  const std::string& address() const { return address_; }

 private:
  class Connections;
  ViewServer();
  static absl::StatusOr<std::unique_ptr<ViewServer>> Listen(
      std::unique_ptr<Connections> connections, int port);

  std::string address_;
  std::unique_ptr<Connections> connections_;
};

}  // namespace weir::view
