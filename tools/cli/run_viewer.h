// Shows a run that goes on by a process of its own: a server that browsers reach must not share
// memory, descriptors or its end with a run that trains.
// Thread rule: any thread; StartViewer waits for the viewer's address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir::cli {

// Starts `weir view --attach` for process `pid`, on `port` (0: any free one). Returns the address
// of the page, or nullopt if the viewer does not run; the viewer has then said why on standard
// error. The viewer ends by itself soon after the run.
std::optional<std::string> StartViewer(int64_t pid, int port);

}  // namespace weir::cli
